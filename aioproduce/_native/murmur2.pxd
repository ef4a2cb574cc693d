# What the other compiled modules of this folder call in C.

cdef unsigned int hash_bytes(unsigned char* key, Py_ssize_t size) noexcept
cpdef long long partition_for_key(bytes key, long long count) except? -1

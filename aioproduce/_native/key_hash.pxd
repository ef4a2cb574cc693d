# What the other compiled modules of this folder call in C.

cdef int _MURMUR2
cdef int _CRC32
cdef int _HASHES
cdef int _HASHES_NULL
cdef int _SKIPS_EMPTY

cdef long long partition_at(int rule, unsigned char* key, Py_ssize_t size, long long count) noexcept
cpdef long long partition_of(int rule, bytes key, long long count) except? -2

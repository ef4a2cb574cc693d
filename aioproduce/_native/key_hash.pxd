from aioproduce._native._memory cimport bytes_at

cdef int _MURMUR2, _CRC32, _HASHES, _HASHES_NULL, _SKIPS_EMPTY

cdef long long partition_at(int rule, unsigned char *key, Py_ssize_t size, long long count) noexcept
cpdef long long partition_of(int rule, bytes key, long long count) except? -2

cdef unsigned int _murmur2_at(unsigned char *key, Py_ssize_t size) noexcept
cdef unsigned int _fnv1a_at(unsigned char *key, Py_ssize_t size) noexcept
cdef unsigned int _crc32_at(unsigned char *key, Py_ssize_t size) noexcept

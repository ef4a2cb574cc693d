# What `bulk_append` and `columns` call in C.

cdef Py_ssize_t unsigned_size(unsigned long long value) noexcept
cdef Py_ssize_t put_unsigned(unsigned char* target, Py_ssize_t position, unsigned long long value) noexcept
cdef Py_ssize_t part_size(Py_ssize_t size) noexcept
cdef Py_ssize_t put_part(
    unsigned char* target, Py_ssize_t position, unsigned char* source, Py_ssize_t size
) noexcept
cdef Py_ssize_t write_record(
    unsigned char* data,
    Py_ssize_t position,
    Py_ssize_t limit,
    long long timestamp,
    long long base_timestamp,
    Py_ssize_t index,
    unsigned char* key,
    Py_ssize_t key_size,
    unsigned char* value,
    Py_ssize_t value_size,
    unsigned char* headers,
    Py_ssize_t headers_size,
) noexcept

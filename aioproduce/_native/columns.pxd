# What `bulk_append` reads of columns in C.

# Numbers in C: as names of the module each use would be a look-up and an object.
cdef int FOUND
cdef int NOT_BYTES
cdef int MALFORMED


cdef class ByteColumn:
    cdef list _items
    cdef list _kept
    cdef Py_ssize_t _length
    cdef Py_ssize_t _row
    cdef bint _has_validity
    cdef bint _is_large
    cdef unsigned char* _validity
    cdef int* _offsets
    cdef long long* _large_offsets
    cdef unsigned char* _data
    cdef Py_ssize_t _data_size
    cdef unsigned char* _at
    cdef Py_ssize_t _size
    cdef int locate(self, Py_ssize_t index) noexcept

cdef class LongColumn:
    cdef list _kept
    cdef Py_ssize_t _length
    cdef Py_ssize_t _row
    cdef bint _has_validity
    cdef unsigned char* _validity
    cdef long long* _values
    cdef bint is_null(self, Py_ssize_t index) noexcept

cdef class HeaderColumn:
    cdef list _kept
    cdef Py_ssize_t _length
    cdef Py_ssize_t _row
    cdef bint _has_validity
    cdef unsigned char* _validity
    cdef int* _offsets
    cdef ByteColumn _names
    cdef ByteColumn _values
    cdef bytearray _room
    cdef unsigned char* _at
    cdef Py_ssize_t _size
    cdef Py_ssize_t _width
    cdef unsigned char* _encoded
    cdef int locate(self, Py_ssize_t index) except? -1
    cdef int _encode(self, Py_ssize_t index) except? -1

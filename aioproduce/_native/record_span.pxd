# What `bulk_append` fills in C.

cdef class RecordSpan:
    cdef Py_ssize_t _count
    cdef list _results
    cdef Py_ssize_t _first_index
    cdef bint _is_routed
    cdef bint _has_keys
    cdef bint _has_timestamps
    cdef bytearray _places
    cdef bytearray _indices
    cdef bytearray _key_sizes
    cdef bytearray _value_sizes
    cdef long long _timestamp
    cdef bytearray _timestamps
    cdef tuple _entry(self, Py_ssize_t index)
    cdef trim(self, Py_ssize_t count)

cdef int* int_room(bytearray storage) except? NULL
cdef long long* long_room(bytearray storage) except? NULL

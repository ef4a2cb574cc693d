cimport cython


cdef Py_ssize_t _TAGS_AT, _TOPICS_AT, _UUID_SIZE, _PARTITION_SIZE, _END_SIZE, _JOINED


@cython.locals(
    is_flexible=cython.bint, groups=list, first=bytearray, piece=bytearray, buffers=list, run=list, beginning=list,
    total=cython.longlong, group=list, size=cython.Py_ssize_t
)
cpdef list encode_produce(
    int version, long long correlation_id, str client_id, int acks, double timeout, object batches,
    object transactional_id=*
)
@cython.locals(keys=list, has_one_topic=cython.bint, topics=dict, group=list, index=cython.Py_ssize_t)
cdef list _by_topic(bint is_by_id, object batches, int version)
cdef _put_int32(bytearray piece, long long value)
cdef _put_count(bytearray piece, long long count, bint is_flexible)
@cython.locals(
    data=bytes, end=cython.Py_ssize_t, topics=cython.Py_ssize_t, at=cython.Py_ssize_t, count=cython.Py_ssize_t,
    partitions=list
)
cpdef plain_answer(memoryview frame)
@cython.locals(low=cython.uchar, high=cython.uchar)
cdef (Py_ssize_t, Py_ssize_t) _read_count(bytes data, Py_ssize_t at) except *

cimport cython


@cython.locals(
    is_flexible=cython.bint, groups=list, piece=bytearray, pieces=list, total=cython.longlong, group=list,
    size=cython.Py_ssize_t
)
cpdef list encode_produce(
    int version, long long correlation_id, str client_id, int acks, double timeout, object batches,
    object transactional_id=*
)
@cython.locals(keys=list, has_one_topic=cython.bint, topics=dict, group=list, index=cython.Py_ssize_t)
cdef list _by_topic(bint is_by_id, object batches, int version)
cdef _put_int32(bytearray piece, long long value)
cdef _put_count(bytearray piece, long long count, bint is_flexible)
@cython.locals(size=cython.Py_ssize_t, count=cython.Py_ssize_t, index=cython.Py_ssize_t, partitions=list)
cpdef plain_answer(memoryview frame)

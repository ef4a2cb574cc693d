cimport cython
from aioproduce.wire.produce cimport plain_answer


@cython.locals(correlation_id=cython.longlong)
cpdef long long correlation_id_of(memoryview frame) except? -1
cpdef decode_body(object api_key, int api_version, memoryview frame)
cdef _decode(object api_key, int api_version, memoryview frame)

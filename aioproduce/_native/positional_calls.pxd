from aioproduce._native.send_path cimport SendPath, make_call


cdef class PositionalCalls:
    cdef SendPath _path


cdef _call(
    SendPath path, object topic, object value, object key, object partition, object timestamp,
    object headers, bint is_awaiting
)

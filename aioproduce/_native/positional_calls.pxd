# The class of `positional_calls.py` as C knows it.

from aioproduce._native.send_path cimport SendPath


cdef class PositionalCalls:
    cdef SendPath _path

cimport cython
from aioproduce.core.batching.topic_queues cimport PartitionQueue


@cython.final
cdef class ReadyQueues:
    cdef public dict _by_node
    cdef public object _leaderless

    cpdef bint add(self, PartitionQueue queue) except -1
    cpdef remove(self, PartitionQueue queue)
    cpdef Py_ssize_t count(self, Py_ssize_t node) except -1
    cpdef PartitionQueue first(self, Py_ssize_t node)

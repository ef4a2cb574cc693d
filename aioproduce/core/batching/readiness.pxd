cimport cython
from aioproduce.core.batching.buffer_pool cimport BufferPool
from aioproduce.core.batching.producer_batch cimport ProducerBatch
from aioproduce.core.batching.ready_queues cimport ReadyQueues
from aioproduce.core.batching.topic_queues cimport PartitionQueue
from aioproduce.core.deadlines cimport Deadlines


@cython.final
cdef class Readiness:
    cdef public BufferPool _pool
    cdef public object _compression, _blocked, _lingering
    cdef public Deadlines _deadlines
    cdef public double _linger
    cdef readonly ReadyQueues ready
    cdef public long long _flush_before
    cdef public bint _is_closing
    cdef public bint has_news, has_new_leaderless

    @cython.locals(head=ProducerBatch)
    cpdef reconsider(self, PartitionQueue queue, double now)
    cpdef tail_changed(self, PartitionQueue queue, double now)
    cpdef block(self, PartitionQueue queue)
    cpdef unblock(self, PartitionQueue queue, double now)
    cpdef PartitionQueue first(self, Py_ssize_t node, double now)
    @cython.locals(head=ProducerBatch)
    cdef _sendable_at(self, PartitionQueue queue)
    cdef _mark_ready(self, PartitionQueue queue)

cimport cython
from aioproduce._native.delivery cimport BatchResult, DeliveryFuture
from aioproduce._native.topic_appender cimport TopicAppender
from aioproduce.core.batching.buffer_pool cimport BufferLease, BufferPool
from aioproduce.core.batching.incomplete_batches cimport IncompleteBatches
from aioproduce.core.batching.producer_batch cimport ProducerBatch
from aioproduce.core.batching.readiness cimport Readiness
from aioproduce.core.batching.sequences cimport Sequences
from aioproduce.core.batching.topic_queues cimport PartitionQueue, TopicQueues
from aioproduce.core.cluster.cluster_metadata cimport ClusterMetadata
from aioproduce.core.cluster.metadata_views cimport TopicView


@cython.final
cdef class RecordAccumulator:
    cdef public str _audit_topic
    cdef public object _backoff, _compression, _partitioning, _runtime
    cdef public ClusterMetadata _metadata
    cdef public Py_ssize_t _batch_size, _max_request_size, _overhead
    cdef public double _delivery_timeout, _linger
    cdef public IncompleteBatches _incomplete
    cdef public bint _is_transactional, _measure_each
    cdef public long long _next_batch_id
    cdef public BufferPool _pool
    cdef public Sequences _sequences
    cdef public dict _topics
    cdef readonly dict appenders
    cdef readonly object audit
    cdef readonly Readiness readiness

    cpdef Py_ssize_t size_of(self, object record) except -1
    cpdef DeliveryFuture append(self, TopicView topic, object record, double now)
    cpdef DeliveryFuture append_to_open(self, TopicView topic, object record, double now)
    cpdef DeliveryFuture append_with(self, object lease, TopicView topic, object record, double now)
    cdef DeliveryFuture _append_to_open(
        self, TopicQueues queues, object target, TopicView topic, object record, double now
    )
    @cython.locals(batch=ProducerBatch)
    cdef DeliveryFuture _append_to_new(
        self, object lease, TopicQueues queues, object target, TopicView topic, object record, double now
    )
    cdef TopicQueues _queues_of(self, TopicView topic)
    cdef ProducerBatch _new_batch(self, PartitionQueue queue, object lease, double now)
    @cython.locals(last=ProducerBatch)
    cdef _enqueue(self, ProducerBatch batch, PartitionQueue queue, bint is_full, double now)
    cpdef BatchResult append_batch(self, object lease, TopicView topic, Py_ssize_t partition, object records, double now)
    cdef TopicQueues _add_topic(self, TopicView topic)
    cdef _close_open_batch(self, PartitionQueue queue, double now)
    cpdef unblock(self, object topic_partition, double now)
    @cython.locals(queues=TopicQueues)
    cpdef PartitionQueue _find(self, object topic_partition)
    @cython.locals(batch=ProducerBatch, size=cython.Py_ssize_t, drained=list, served=set, topic=TopicView)
    cpdef list drain(self, Py_ssize_t node, double now)
    cdef _begin_attempt(self, PartitionQueue queue, ProducerBatch batch, double now)
    cdef _compression_ended(self, ProducerBatch batch, double now)
    cdef PartitionQueue _put_back(self, object batches)
    cpdef next_timer(self)
    cpdef settled(self, ProducerBatch batch)

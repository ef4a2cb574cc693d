cimport cython
from aioproduce._native.collector cimport untrack
from aioproduce._native.key_hash cimport partition_of
from aioproduce._native.topic_appender cimport TopicAppender
from aioproduce.core.batching.batch_queue cimport BatchQueue
from aioproduce.core.batching.producer_batch cimport ProducerBatch
from aioproduce.core.cluster.cluster_metadata cimport ClusterMetadata
from aioproduce.core.cluster.metadata_views cimport TopicView


@cython.final
cdef class PartitionQueue:
    cdef readonly object topic_partition
    cdef readonly TopicAppender appender
    cdef readonly BatchQueue batches
    cdef readonly ProducerBatch open
    cdef public Py_ssize_t leader_id, leader_epoch
    cdef public object ready_node
    cdef public bint is_muted, is_blocked

    cpdef add(self, ProducerBatch batch, bint is_full)
    cpdef bint close_open(self) except -1
    cpdef take(self, ProducerBatch batch)
    @cython.locals(other=ProducerBatch)
    cpdef put_back(self, ProducerBatch batch, object is_before)


@cython.final
cdef class TopicQueues:
    cdef public str _name
    cdef public int _key_rule
    cdef readonly TopicAppender appender
    cdef readonly object audit
    cdef readonly dict partitions
    cdef readonly object keyless

    cpdef object partition_of(self, TopicView view, object partition, bytes key)
    cpdef PartitionQueue queue(self, Py_ssize_t partition, ClusterMetadata metadata)

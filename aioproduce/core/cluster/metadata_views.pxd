cimport cython
from aioproduce._native.collector cimport untrack


@cython.final
cdef class PartitionView:
    cdef readonly Py_ssize_t partition
    cdef public Py_ssize_t leader_id, leader_epoch, reported_leader_id
    cdef public int error_code
    cdef public tuple replicas, isr


@cython.final
cdef class TopicView:
    cdef readonly str name
    cdef public object topic_id
    cdef public bint was_missing, is_internal, is_answered
    cdef public int error_code
    cdef public Py_ssize_t partition_count
    cdef public list partitions
    cdef public tuple available
    cdef public double used_at

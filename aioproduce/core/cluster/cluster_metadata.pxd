cimport cython
from aioproduce.core.cluster.metadata_views cimport PartitionView, TopicView


@cython.final
cdef class ClusterMetadata:
    cdef public dict _bootstrap, _brokers, _topics, _names, _pending
    cdef public double _max_age, _max_idle, _rebootstrap_trigger
    cdef public object _backoff, _strategy, _attempt_started_at, _in_flight
    cdef public object cluster_id, last_success_at
    cdef public Py_ssize_t version, _failures, _equivalent_answers
    cdef public bint _is_bootstrapping, _is_rebootstrap_demanded
    cdef public object _partial_due_at, _full_due_at, _allowed_at

    @cython.locals(view=TopicView)
    cpdef TopicView topic(self, str name)
    @cython.locals(view=PartitionView)
    cpdef Py_ssize_t leader_of(self, str topic, Py_ssize_t partition) except? -1
    @cython.locals(view=PartitionView)
    cpdef Py_ssize_t leader_epoch_of(self, str topic, Py_ssize_t partition) except? -1
    cpdef broker(self, object node_id)
    @cython.locals(view=TopicView)
    cpdef touch(self, str name, double now)
    cpdef next_update_at(self)
    cpdef bint is_late(self, object due_at, double now) except -1
    @cython.locals(view=TopicView)
    cdef PartitionView _partition(self, str topic, Py_ssize_t partition)

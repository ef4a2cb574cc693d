cimport cython
from aioproduce.core.batching.producer_batch cimport ProducerBatch


@cython.final
cdef class _PartitionSequences:
    cdef public object producer
    cdef public Py_ssize_t next, last_acked
    cdef public object acked_topic_id
    cdef public list in_flight
    cdef public object unresolved_until

    cdef bint has_acked_in(self, object topic_id) except -1


@cython.final
cdef class Sequences:
    cdef public object _state, _producer
    cdef public dict _partitions, _unresolved, _to_rewrite
    cdef public object transaction

    @cython.locals(partition=_PartitionSequences)
    cpdef bint may_send(self, ProducerBatch batch) except -1
    @cython.locals(partition=_PartitionSequences)
    cpdef assign_sequence(self, ProducerBatch batch)
    @cython.locals(partition=_PartitionSequences)
    cpdef batch_succeeded(self, ProducerBatch batch)
    cpdef list settle_sequences(self)
    cdef _remove(self, _PartitionSequences partition, ProducerBatch batch)
    cpdef _PartitionSequences _partition(self, object topic_partition)


@cython.locals(sequence=cython.longlong, records=cython.longlong)
cpdef long long next_sequence(long long sequence, long long records) except -1
cpdef bint is_later(long long sequence, long long other) except -1

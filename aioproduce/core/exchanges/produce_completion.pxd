cimport cython
from aioproduce._native.sensors cimport BatchMetrics
from aioproduce.core.batching.producer_batch cimport ProducerBatch
from aioproduce.core.batching.record_accumulator cimport RecordAccumulator
from aioproduce.core.batching.sequences cimport Sequences
from aioproduce.core.cluster.cluster_metadata cimport ClusterMetadata


cdef int _NONE, _DUPLICATE, _TOO_LARGE


@cython.final
cdef class ProduceCompletion:
    cdef public RecordAccumulator _accumulator
    cdef public ClusterMetadata _metadata
    cdef public object _ambiguous, _bounded_log, _config, _metrics
    cdef public Sequences _sequences
    cdef public BatchMetrics _batch_metrics
    cdef readonly bint keeps_order_by_muting
    cdef readonly object errors
    cdef readonly object settled
    cdef public object transaction

    @cython.locals(batch=ProducerBatch, has_all=cython.bint, index=cython.Py_ssize_t)
    cpdef bint answered(self, list batches, object response, object connection, double now) except -1
    cdef _lost(self, ProducerBatch batch, int code, str reason, double now)
    @cython.locals(code=cython.int)
    cdef _complete(self, ProducerBatch batch, object answer, double now, bint was_answered)
    cdef _succeed(self, ProducerBatch batch, object answer, double now)
    cdef _record_end(self, ProducerBatch batch, double now)
    cdef _after_settling(self, ProducerBatch batch)


@cython.locals(batch=ProducerBatch, index=cython.Py_ssize_t)
cdef _in_order(list batches, tuple answers)

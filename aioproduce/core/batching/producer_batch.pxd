cimport cython
from aioproduce._native.delivery cimport BatchResult, DeliveryFuture
from aioproduce._native.record_batch cimport RecordBatchBuffer


@cython.final
cdef class ProducerBatch:
    cdef readonly object topic_partition
    cdef readonly str topic
    cdef readonly Py_ssize_t partition
    cdef public RecordBatchBuffer records
    cdef readonly BatchResult result
    cdef readonly long long batch_id
    cdef readonly double created_at, deadline
    cdef public double closed_at, first_sent_at, first_failed_at, retry_at
    cdef public object state
    cdef public bint is_open, possibly_written, sequence_has_been_reset
    cdef public Py_ssize_t attempts, sent_leader_epoch, base_sequence, size, _sealed_sequence
    cdef public object last_error, last_code, producer, audit, topic_id, buffers
    cdef public ProducerBatch ahead, behind, _origin
    cdef public object _lease, _compressed, _sealed_for
    cdef public int _codec_id

    cpdef DeliveryFuture try_append(self, long long timestamp, bytes key, bytes value, object headers)
    cpdef close_for_appends(self)
    cpdef set_sequence(self, object producer, Py_ssize_t base_sequence)
    cpdef begin_attempt(self, bint is_transactional=*)
    cpdef requeue(self, double retry_at)
    cpdef succeed(self, long long base_offset, long long log_append_time, long long log_start_offset=*)
    cpdef release_abandoned(self)
    cdef _fail(self, BaseException error, dict record_errors)
    cdef _move(self, str event)
    cdef _release(self)
    cdef _drop_bytes(self)

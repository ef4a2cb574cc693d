cimport cython
from aioproduce._native.stats cimport Distribution, Meter, Spread, Windows


@cython.final
cdef class TopicMetrics:
    cdef readonly Meter records, bytes
    cdef readonly Spread compression
    cdef readonly Meter retries, errors


cdef class NodeMetrics:
    cdef NodeMetrics _all
    cdef Distribution _latencies
    cdef readonly Spread requests
    cdef readonly Meter outgoing, responses, incoming
    cdef readonly Spread latency
    cdef readonly Meter operations
    cdef public object in_flight, silent_for
    cpdef sent(self, Py_ssize_t size, double now)
    cpdef received(self, Py_ssize_t size, Py_ssize_t responses, double now)
    cpdef answered(self, double latency, double now)


cdef class RequestMetrics:
    cdef Windows _windows
    cdef readonly dict nodes
    cdef readonly NodeMetrics all_nodes
    cdef readonly Distribution request_latency, throttle
    cdef readonly Spread steps_worked, steps_waited
    cdef readonly Distribution loop_lag
    cpdef NodeMetrics node(self, Py_ssize_t node_id)
    cpdef throttled(self, double seconds, double now)
    cpdef stepped(self, double waited, double worked, double now)
    cpdef lagged(self, double seconds, double now)


cdef class BatchMetrics:
    cdef Windows _windows
    cdef readonly dict topics
    cdef readonly Distribution size
    cdef readonly Spread compression
    cdef readonly Distribution queue_time
    cdef readonly Meter records
    cdef readonly Spread records_per_request, record_size
    cdef readonly Meter retries, errors
    cdef readonly Distribution batching_time, await_send_time, in_flight_time, retry_time
    cdef readonly Distribution delivery_time
    cpdef TopicMetrics topic(self, str name)
    cpdef batch_sent(
        self, str topic_name, Py_ssize_t count, Py_ssize_t whole, Py_ssize_t largest, Py_ssize_t size, double queued,
        double now
    )
    cpdef request_sent(self, Py_ssize_t count, double now)
    cpdef batch_retried(self, str topic_name, Py_ssize_t count, double now)
    cpdef batch_ended(self, double created_at, double closed_at, double sent_at, double failed_at, double now)
    cpdef batch_failed(self, str topic_name, Py_ssize_t count, double now)

# What is recorded of each batch and each request, in C.

from aioproduce._native.stats cimport Distribution, Meter, Spread, SummedSpread, Windows


cdef class TopicMetrics:
    cdef readonly Meter records
    cdef readonly Meter bytes
    cdef readonly Spread compression
    cdef readonly Meter retries
    cdef readonly Meter errors


cdef class NodeMetrics:
    cdef NodeMetrics _all
    cdef Distribution _latencies
    cdef readonly Spread requests
    cdef readonly Meter outgoing
    cdef readonly Meter responses
    cdef readonly Meter incoming
    cdef readonly Spread latency
    cdef readonly Meter operations
    cdef public object in_flight
    cpdef sent(self, Py_ssize_t size, double now)
    cpdef received(self, Py_ssize_t size, Py_ssize_t responses, double now)
    cpdef answered(self, double latency, double now)


cdef class RequestMetrics:
    cdef Windows _windows
    cdef readonly dict nodes
    cdef readonly NodeMetrics all_nodes
    cdef readonly Distribution request_latency
    cdef readonly Distribution throttle
    cdef readonly Spread steps_worked
    cdef readonly Spread steps_waited
    cdef readonly Distribution loop_lag
    cpdef NodeMetrics node(self, Py_ssize_t node_id)


cdef class BatchMetrics:
    cdef Windows _windows
    cdef readonly dict topics
    cdef readonly Distribution size
    cdef readonly Spread compression
    cdef readonly Distribution queue_time
    cdef readonly Meter records
    cdef readonly Spread records_per_request
    cdef readonly SummedSpread record_size
    cdef readonly Meter retries
    cdef readonly Meter errors
    cdef readonly Distribution batching_time
    cdef readonly Distribution await_send_time
    cdef readonly Distribution in_flight_time
    cdef readonly Distribution retry_time
    cdef readonly Distribution delivery_time
    cpdef TopicMetrics topic(self, str name)

cimport cython
from aioproduce.core.cluster.broker_connection cimport BrokerConnection


@cython.final
cdef class Node:
    cdef readonly object address
    cdef public BrokerConnection connection
    cdef public Py_ssize_t failed_attempts, failed_setups
    cdef public bint is_retained
    cdef public double last_ended_at, next_attempt_at
    cdef public object last_error, security_error, silent_since
    cdef public long long ready_id
    cdef public Py_ssize_t security_failures

cimport cython
from aioproduce.core.cluster.broker_connection cimport BrokerConnection
from aioproduce.core.cluster.node cimport Node
from aioproduce.core.deadlines cimport Deadlines


@cython.final
cdef class BrokerConnections:
    cdef public object _backoffs, _jitter, _metrics, _random, _security, _settings, _turns
    cdef public Deadlines _deadlines, _wakeups
    cdef public dict _by_id, _fatal_errors, _nodes
    cdef public bint _is_closed
    cdef public long long _last_connection_id
    cdef readonly object effects, offloads
    cdef readonly object login
    cdef public long long negotiations

    @cython.locals(node=Node)
    cpdef BrokerConnection ensure(self, object address, double now)
    @cython.locals(connection=BrokerConnection, was_ready=cython.bint, had_answered=cython.bint)
    cpdef list receive_data(self, long long connection_id, bytes data, double now)
    @cython.locals(connection=BrokerConnection)
    cpdef list writable(self, long long connection_id, double now)
    cpdef next_timer(self)
    cdef Node _node_at(self, object address, double now)

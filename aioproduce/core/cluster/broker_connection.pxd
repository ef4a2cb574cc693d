cimport cython
from aioproduce._native.sensors cimport NodeMetrics
from aioproduce.core.cluster.in_flight_request cimport Completed, InFlightRequest
from aioproduce.core.deadlines cimport Deadlines
from aioproduce.wire.framing cimport FrameReader
from aioproduce.wire.responses cimport correlation_id_of, decode_body


@cython.final
cdef class BrokerConnection:
    cdef public long long _correlation_id
    cdef public object _effects, _own_answered, _own_request
    cdef public Deadlines _deadlines
    cdef public FrameReader _frames
    cdef public double _setup_deadline
    cdef public NodeMetrics _traffic
    cdef readonly object address
    cdef public object api_versions, authentication, cause, channel, connected_at, error
    cdef readonly long long connection_id
    cdef public bint has_answered, is_writable
    cdef readonly object in_flight
    cdef public double last_heard_at, last_used_at, throttled_until
    cdef public str reason
    cdef public object set_up
    cdef public bint is_open, is_ready
    cdef public Py_ssize_t _max_in_flight
    cdef readonly object settings
    cdef public double setup_timeout
    cdef public object state
    cdef public InFlightRequest unacknowledged

    cpdef bint can_send(self, double now) except -1
    cpdef send(
        self, object api, object encode, object asker, double now, object timeout=*, bint expects_response=*,
        object max_version=*
    )
    cpdef list receive_data(self, bytes data, double now, bint in_turn=*)
    cpdef list writable(self, double now)
    @cython.locals(request=InFlightRequest, correlation_id=cython.longlong)
    cdef Completed _handle_frame(self, memoryview frame, double now)
    cdef _throttle(self, InFlightRequest request, double throttle, double now)
    @cython.locals(earliest=InFlightRequest, request=InFlightRequest)
    cpdef InFlightRequest first_to_expire(self)
    cdef _refresh_deadline(self)
    cpdef next_deadline(self)
    @cython.locals(size=cython.Py_ssize_t, request=InFlightRequest)
    cdef _emit(
        self, object api, int version, object encode, object asker, double now, double timeout, bint expects_response
    )

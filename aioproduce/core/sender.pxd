cimport cython
from aioproduce._native.sensors cimport RequestMetrics
from aioproduce.core.batching.buffer_pool cimport BufferPool
from aioproduce.core.batching.record_accumulator cimport RecordAccumulator
from aioproduce.core.batching.sequences cimport Sequences
from aioproduce.core.cluster.broker_connections cimport BrokerConnections
from aioproduce.core.cluster.cluster_metadata cimport ClusterMetadata
from aioproduce.core.cluster.in_flight_request cimport Completed
from aioproduce.core.exchanges.exchange cimport Exchange
from aioproduce.core.exchanges.metadata_requests cimport MetadataRequests
from aioproduce.core.exchanges.produce_completion cimport ProduceCompletion


@cython.final
cdef class Sender:
    cdef public object _bounded_log, _compression, _flushes, _state
    cdef public RequestMetrics _metrics
    cdef public ProduceCompletion _completion
    cdef public list _exchanges
    cdef public bint _has_work
    cdef readonly RecordAccumulator accumulator
    cdef readonly object audit, partitioning, telemetry, transactions
    cdef readonly BrokerConnections connections
    cdef readonly BufferPool pool
    cdef readonly ClusterMetadata metadata
    cdef readonly Sequences sequences
    cdef readonly MetadataRequests metadata_requests

    @cython.locals(completed=Completed, is_routine=cython.bint)
    cpdef receive_data(self, long long connection_id, bytes data, double now)
    cpdef writable(self, long long connection_id, double now)
    @cython.locals(exchange=Exchange, first=cython.double)
    cpdef next_timer(self)
    cpdef next_effect(self, double now)
    @cython.locals(exchange=Exchange)
    cdef _advance(self, double now)
    cdef _check_flushes(self)
    cdef bint _is_due(self) except -1
    @cython.locals(exchange=Exchange)
    cdef bint _awaits_room(self) except -1

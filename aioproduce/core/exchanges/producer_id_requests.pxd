cimport cython
from aioproduce.core.batching.record_accumulator cimport RecordAccumulator
from aioproduce.core.batching.sequences cimport Sequences
from aioproduce.core.cluster.broker_connections cimport BrokerConnections
from aioproduce.core.cluster.cluster_metadata cimport ClusterMetadata
from aioproduce.core.exchanges.exchange cimport Exchange


cdef class ProducerIdRequests(Exchange):
    cdef public RecordAccumulator _accumulator
    cdef public ClusterMetadata _metadata
    cdef public object _bounded_log, _client_id, _completion, _retry
    cdef public BrokerConnections _connections
    cdef public Py_ssize_t _failures
    cdef public Sequences _sequences

    @cython.locals(sequences=Sequences)
    cpdef advance(self, double now)

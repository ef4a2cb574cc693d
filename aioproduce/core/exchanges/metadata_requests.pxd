cimport cython
from aioproduce.core.batching.record_accumulator cimport RecordAccumulator
from aioproduce.core.cluster.broker_connections cimport BrokerConnections
from aioproduce.core.cluster.cluster_metadata cimport ClusterMetadata
from aioproduce.core.exchanges.exchange cimport Exchange


cdef class MetadataRequests(Exchange):
    cdef public RecordAccumulator _accumulator
    cdef public ClusterMetadata _metadata
    cdef public object _bounded_log, _client_id
    cdef public BrokerConnections _connections
    cdef public dict _waiters
    cdef public bint has_news

    cpdef advance(self, double now)

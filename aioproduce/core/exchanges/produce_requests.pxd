cimport cython
from aioproduce._native.record_batch cimport RecordBatchBuffer
from aioproduce._native.sensors cimport BatchMetrics
from aioproduce.core.batching.candidates cimport BrokerLoads
from aioproduce.core.batching.producer_batch cimport ProducerBatch
from aioproduce.core.batching.readiness cimport Readiness
from aioproduce.core.batching.ready_queues cimport ReadyQueues
from aioproduce.core.batching.record_accumulator cimport RecordAccumulator
from aioproduce.core.batching.sequences cimport Sequences
from aioproduce.core.cluster.broker_connection cimport BrokerConnection
from aioproduce.core.cluster.broker_connections cimport BrokerConnections
from aioproduce.core.cluster.cluster_metadata cimport ClusterMetadata
from aioproduce.core.exchanges.exchange cimport Exchange
from aioproduce.core.exchanges.produce_completion cimport ProduceCompletion
from aioproduce.wire.produce cimport encode_produce


cdef class ProduceRequests(Exchange):
    cdef public RecordAccumulator _accumulator
    cdef public ClusterMetadata _metadata
    cdef public ProduceCompletion _completion
    cdef public object _compression, _transaction, _transactional_id
    cdef public BrokerConnections _connections
    cdef public BrokerLoads _loads
    cdef public BatchMetrics _metrics
    cdef public Sequences _sequences
    cdef public str _client_id
    cdef public int _acks
    cdef public double _timeout

    @cython.locals(readiness=Readiness)
    cpdef advance(self, double now)
    @cython.locals(loads=BrokerLoads, connection=BrokerConnection, batches=list)
    cdef _send_ready(self, ReadyQueues ready, double now)
    @cython.locals(
        batch=ProducerBatch, sent=_Sent, metrics=BatchMetrics, records=RecordBatchBuffer, count=cython.Py_ssize_t
    )
    cdef _send(self, BrokerConnection connection, list batches, double now)


@cython.final
cdef class _Sent:
    cdef public ProduceRequests _requests
    cdef public BrokerConnection _connection
    cdef public list _batches

    cpdef list encode(self, int version, long long correlation_id)
    @cython.locals(requests=ProduceRequests)
    cpdef bint answered(self, object response, double now) except -1

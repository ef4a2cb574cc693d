cimport cython
from aioproduce.core.batching.producer_batch cimport ProducerBatch


@cython.final
cdef class BatchQueue:
    cdef readonly ProducerBatch first, last
    cdef Py_ssize_t _count

    cpdef append(self, ProducerBatch batch)
    @cython.locals(ahead=ProducerBatch)
    cpdef insert(self, ProducerBatch batch, ProducerBatch behind)
    @cython.locals(ahead=ProducerBatch, behind=ProducerBatch)
    cpdef remove(self, ProducerBatch batch)

cimport cython
from aioproduce.core.batching.producer_batch cimport ProducerBatch


@cython.final
cdef class IncompleteBatches:
    cdef public object _parts

    cpdef add(self, ProducerBatch batch)
    @cython.locals(siblings=list)
    cpdef remove(self, ProducerBatch batch)

cimport cython
from aioproduce._native.blocking_delivery cimport BlockingDelivery, new_delivery
from aioproduce._native.delivery cimport DeliveryFuture
from aioproduce._native.topic_appender cimport TopicAppender
from cpython.time cimport monotonic, time as wall_time


cdef class HandOver:
    cdef dict _appenders
    cdef object _wake, _wake_to_answer
    cdef readonly object raise_forked, check_may_wait
    cdef list _entries, _questions
    cdef readonly long long waiting_bytes, sent
    cdef long long _limit, _largest, _forks
    cdef double _clock_offset
    cdef readonly bint is_open
    cdef public bint has_line
    cdef bint _is_plain, _is_told, _is_asked, _is_ended

    cdef bint _ask(self, BlockingDelivery delivery) except -1
    cdef _call(self, object wake)
    cdef bint _put(self, BlockingDelivery delivery, bint is_first) except -1
    cdef _free(self, long long count)


cdef long long _ENTRY
cdef long long cost_of(BlockingDelivery entry) noexcept


cdef class BlockingPath:
    cdef HandOver _hand_over

    cdef BlockingDelivery _taken(
        self, object topic, object value, object key, object partition, object timestamp, object headers,
        object on_delivery
    )

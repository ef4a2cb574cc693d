# Addresses, in C; `_memory.py` is what stands for these in interpreted code. Only C can `export()`.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from libc.string cimport memcpy


cdef inline unsigned char *bytes_at(bytes content) noexcept:
    return <unsigned char *>PyBytes_AS_STRING(content)

cdef inline unsigned char *array_at(bytearray content) noexcept:
    return <unsigned char *>PyByteArray_AS_STRING(content)

# Forbids that its size changes, until `unpin()`, without an object.
cdef inline Py_buffer pin(bytearray content) except *:
    cdef Py_buffer taken
    PyObject_GetBuffer(content, &taken, PyBUF_SIMPLE)
    return taken

cdef inline void unpin(Py_buffer taken) noexcept:
    PyBuffer_Release(&taken)

# Fills `view` with bytes that cannot be written to and belong to `owner`.
cdef inline int export(Py_buffer *view, object owner, unsigned char *data, Py_ssize_t size, int flags) except -1:
    return PyBuffer_FillInfo(view, owner, data, size, 1, flags)

cdef inline int *ints_in(bytearray content) noexcept:
    return <int *>PyByteArray_AS_STRING(content)

cdef inline long long *longs_in(bytearray content) noexcept:
    return <long long *>PyByteArray_AS_STRING(content)

cdef inline unsigned char *view_at(memoryview content) noexcept:
    return <unsigned char *>PyMemoryView_GET_BUFFER(content).buf

cdef inline int *view_ints(memoryview content) noexcept:
    return <int *>PyMemoryView_GET_BUFFER(content).buf

cdef inline long long *view_longs(memoryview content) noexcept:
    return <long long *>PyMemoryView_GET_BUFFER(content).buf

cdef inline bint is_aligned(memoryview content, Py_ssize_t entry) noexcept:
    return <size_t>PyMemoryView_GET_BUFFER(content).buf % entry == 0

cdef inline unsigned char *part_at(unsigned char *content, Py_ssize_t start, Py_ssize_t size) noexcept:
    return content + start

cdef inline Py_ssize_t copy(
    unsigned char *target, Py_ssize_t position, unsigned char *source, Py_ssize_t size
) noexcept:
    memcpy(target + position, source, size)
    return position + size

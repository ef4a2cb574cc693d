# Gives a cdef class CPython's `am_send` (PEP 489's neighbour of `__next__`, since 3.10), for which Cython has no
# special method: `await` then takes a result as a return value. Without it every result is a StopIteration that is
# made, raised and caught, 270 ns. `__next__` stays: it is what other callers use, and what an interpreted class has.

from cpython.ref cimport PyObject

cdef extern from *:
    """
    typedef int (*aioproduce_sendfunc)(PyObject *, PyObject *, PyObject **);
    static void aioproduce_set_am_send(PyObject *type, aioproduce_sendfunc function) {
        PyTypeObject *target = (PyTypeObject *)type;
        target->tp_as_async->am_send = (sendfunc)function;
        PyType_Modified(target);
    }
    """
    ctypedef int (*sendfunc_t "aioproduce_sendfunc")(object, object, PyObject **) except -1
    void set_am_send "aioproduce_set_am_send" (object type, sendfunc_t function)

# Gives a cdef class what `await` calls in CPython, for which Cython has no special method: `am_send`, by which a result
# is a return value (3.11, and asyncio's tasks in all versions), and a `tp_iternext` by which it is a StopIteration
# made in C (`await` itself from 3.12 on). A `__next__` of Cython's costs 270 ns a result: it is raised there and
# caught, with a traceback. `__next__` stays: it is what other callers use, and what an interpreted class has.

from cpython.ref cimport PyObject

cdef extern from *:
    """
    typedef int (*aioproduce_sendfunc)(PyObject *, PyObject *, PyObject **);
    static PyObject *aioproduce_iternext(PyObject *self) {
        PyObject *result = NULL;
        PyObject *stop;
        PySendResult status = Py_TYPE(self)->tp_as_async->am_send(self, Py_None, &result);
        if (status == PYGEN_NEXT) return result;
        if (status == PYGEN_RETURN) {
            if (result == Py_None) {
                /* NULL without an exception is the end, and gives None */
            } else if (PyTuple_Check(result) || PyExceptionInstance_Check(result)) {
                /* as they are, they would be taken for the arguments, and for the StopIteration itself */
                stop = PyObject_CallFunctionObjArgs(PyExc_StopIteration, result, NULL);
                if (stop != NULL) {
                    PyErr_SetObject(PyExc_StopIteration, stop);
                    Py_DECREF(stop);
                }
            } else {
                PyErr_SetObject(PyExc_StopIteration, result);
            }
            Py_DECREF(result);
        }
        return NULL;
    }
    static CYTHON_INLINE void aioproduce_set_am_send(PyObject *type, aioproduce_sendfunc function) {
        PyTypeObject *target = (PyTypeObject *)type;
        target->tp_as_async->am_send = (sendfunc)function;
        target->tp_iternext = aioproduce_iternext;
        PyType_Modified(target);
    }
    """
    ctypedef int (*sendfunc_t "aioproduce_sendfunc")(object, object, PyObject **) except -1
    void set_am_send "aioproduce_set_am_send" (object type, sendfunc_t function)

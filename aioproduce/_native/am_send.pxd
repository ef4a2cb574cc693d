# Gives a cdef class what `await` calls in CPython, for which Cython has no special method: `am_send`, by which a result
# is a return value (3.11, and asyncio's tasks in all versions), and a `tp_iternext` by which it is a StopIteration
# made in C (`await` itself from 3.12 on). A `__next__` of Cython's costs 270 ns a result: it is raised there and
# caught, with a traceback. `__next__` stays: it is what other callers use, and what an interpreted class has.
#
# That StopIteration is of a class of its own, whose instances do not die: the last reference to one, when it is
# dropped, goes to `aioproduce_spare`, and the next result takes it from there. `await` drops it at once.
#
# 1. What is spare keeps nothing alive: value, and all else that an exception has, went with the last reference.
# 2. It is given out only while nobody else refers to it: what a debugger keeps stays as it is.
# 3. One is spare at most, and has no owner: threads take it in turn, as they have the interpreter's lock in turn.
#    Modules of Cython are in one interpreter of a process. Without the lock each result makes its own.

from cpython.ref cimport PyObject

cdef extern from *:
    """
    typedef int (*aioproduce_sendfunc)(PyObject *, PyObject *, PyObject **);

    #if CYTHON_COMPILING_IN_CPYTHON && PY_VERSION_HEX >= 0x030C0000 && !defined(Py_GIL_DISABLED)
    static PyTypeObject *aioproduce_stop_type = NULL;
    static PyObject *aioproduce_spare = NULL;

    static void aioproduce_stop_dealloc(PyObject *self) {
        PyStopIterationObject *stop = (PyStopIterationObject *)self;
        PyTypeObject *type = Py_TYPE(self);
        PyObject *value;
        if (aioproduce_spare == NULL && stop->dict == NULL && stop->notes == NULL && stop->traceback == NULL
            && stop->context == NULL && stop->cause == NULL && PyTuple_GET_SIZE(stop->args) == 0) {
            value = stop->value;
            stop->value = NULL;
            stop->suppress_context = 0;
            _Py_NewReference(self);
            aioproduce_spare = self;
            Py_XDECREF(value);
        } else {
            ((PyTypeObject *)PyExc_StopIteration)->tp_dealloc(self);
            Py_DECREF(type);
        }
    }
    static PyType_Slot aioproduce_stop_slots[] = {
        {Py_tp_dealloc, (void *)aioproduce_stop_dealloc},
        {0, NULL},
    };
    static PyType_Spec aioproduce_stop_spec = {
        "aioproduce._native.StopIteration", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        aioproduce_stop_slots,
    };
    static int aioproduce_prepare_stop(void) {
        aioproduce_stop_type = (PyTypeObject *)PyType_FromSpecWithBases(&aioproduce_stop_spec, PyExc_StopIteration);
        return aioproduce_stop_type == NULL ? -1 : 0;
    }
    /* Takes over the reference to the value. */
    static void aioproduce_stop(PyObject *value) {
        PyObject *stop = aioproduce_spare;
        aioproduce_spare = NULL;
        if (stop == NULL || Py_REFCNT(stop) != 1) {
            Py_XDECREF(stop);
            stop = PyTuple_New(0);
            if (stop != NULL) Py_SETREF(stop, aioproduce_stop_type->tp_base->tp_new(aioproduce_stop_type, stop, NULL));
            if (stop == NULL) {
                Py_DECREF(value);
                return;
            }
        }
        Py_XSETREF(((PyStopIterationObject *)stop)->value, value);
        PyErr_SetRaisedException(stop);
    }
    #else
    static int aioproduce_prepare_stop(void) { return 0; }
    static void aioproduce_stop(PyObject *value) {
        PyObject *stop = PyObject_CallFunctionObjArgs(PyExc_StopIteration, value, NULL);
        if (stop != NULL) PyErr_SetObject(PyExc_StopIteration, stop);
        Py_XDECREF(stop);
        Py_DECREF(value);
    }
    #endif

    static PyObject *aioproduce_iternext(PyObject *self) {
        PyObject *result = NULL;
        PySendResult status = Py_TYPE(self)->tp_as_async->am_send(self, Py_None, &result);
        if (status == PYGEN_NEXT) return result;
        /* NULL without an exception is the end, too, and gives None */
        if (status == PYGEN_RETURN) {
            if (result == Py_None) Py_DECREF(result);
            else aioproduce_stop(result);
        }
        return NULL;
    }
    static CYTHON_INLINE int aioproduce_set_am_send(PyObject *type, aioproduce_sendfunc function) {
        PyTypeObject *target = (PyTypeObject *)type;
        if (aioproduce_prepare_stop() < 0) return -1;
        target->tp_as_async->am_send = (sendfunc)function;
        target->tp_iternext = aioproduce_iternext;
        PyType_Modified(target);
        return 0;
    }
    """
    ctypedef int (*sendfunc_t "aioproduce_sendfunc")(object, object, PyObject **) except -1
    int set_am_send "aioproduce_set_am_send" (object type, sendfunc_t function) except -1

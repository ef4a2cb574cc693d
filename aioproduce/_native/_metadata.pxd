# Metadata of records (six fields), and as another library has it (seven, the third a topic and partition): named tuples
# without the frames of their constructors, and without the garbage collector. Strings and numbers refer to nothing, and
# a million such tuples kept by a user would cost each of its passes. `_metadata.py` makes them in interpreted code.

cdef extern from *:
    """
    /* Takes over the references in `fields`, of which any may be NULL with an exception set. */
    static CYTHON_INLINE PyObject *aioproduce_untracked(PyObject *type, PyObject **fields, int count) {
        PyTypeObject *kind = (PyTypeObject *)type;
        PyObject *made = kind->tp_alloc(kind, count);
        int field, failed = made == NULL;
        for (field = 0; field < count; field++) {
            failed |= fields[field] == NULL;
            if (made == NULL) Py_XDECREF(fields[field]);
            else PyTuple_SET_ITEM(made, field, fields[field]);
        }
        if (failed) {
            Py_XDECREF(made);
            return NULL;
        }
        PyObject_GC_UnTrack(made);
        return made;
    }
    static CYTHON_INLINE PyObject *aioproduce_record_metadata(
        PyObject *type, PyObject *topic, long partition, long long offset, long long timestamp, long key_size,
        long value_size
    ) {
        PyObject *fields[] = {
            Py_NewRef(topic), PyLong_FromLong(partition), PyLong_FromLongLong(offset),
            PyLong_FromLongLong(timestamp), PyLong_FromLong(key_size), PyLong_FromLong(value_size)
        };
        return aioproduce_untracked(type, fields, 6);
    }
    static CYTHON_INLINE PyObject *aioproduce_placed_metadata(
        PyObject *type, PyObject *topic, long partition, PyObject *place, long long offset, long long timestamp,
        long timestamp_type, long long log_start_offset
    ) {
        PyObject *fields[] = {
            Py_NewRef(topic), PyLong_FromLong(partition), Py_NewRef(place), PyLong_FromLongLong(offset),
            PyLong_FromLongLong(timestamp), PyLong_FromLong(timestamp_type), PyLong_FromLongLong(log_start_offset)
        };
        return aioproduce_untracked(type, fields, 7);
    }
    """
    object record_metadata "aioproduce_record_metadata" (
        object type, str topic, long partition, long long offset, long long timestamp, long key_size, long value_size
    )
    object placed_metadata "aioproduce_placed_metadata" (
        object type, str topic, long partition, object place, long long offset, long long timestamp,
        long timestamp_type, long long log_start_offset
    )

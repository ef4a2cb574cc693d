# A RecordMetadata without the frames of its constructor, and without the garbage collector: a str and five ints
# refer to nothing, and a million of them kept by a user would cost each of its passes.

cdef extern from *:
    """
    static PyObject *aioproduce_record_metadata(
        PyObject *type, PyObject *topic, long partition, long long offset, long long timestamp, long key_size,
        long value_size
    ) {
        PyTypeObject *kind = (PyTypeObject *)type;
        PyObject *metadata = kind->tp_alloc(kind, 6);
        PyObject *fields[6];
        int field;
        if (metadata == NULL) return NULL;
        Py_INCREF(topic);
        fields[0] = topic;
        fields[1] = PyLong_FromLong(partition);
        fields[2] = PyLong_FromLongLong(offset);
        fields[3] = PyLong_FromLongLong(timestamp);
        fields[4] = PyLong_FromLong(key_size);
        fields[5] = PyLong_FromLong(value_size);
        for (field = 0; field < 6; field++) PyTuple_SET_ITEM(metadata, field, fields[field]);
        for (field = 0; field < 6; field++) {
            if (fields[field] == NULL) {
                Py_DECREF(metadata);
                return NULL;
            }
        }
        PyObject_GC_UnTrack(metadata);
        return metadata;
    }
    """
    object record_metadata "aioproduce_record_metadata" (
        object type, str topic, long partition, long long offset, long long timestamp, long key_size, long value_size
    )

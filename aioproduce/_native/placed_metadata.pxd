# Another library's RecordMetadata, as `record_metadata.pxd` makes ours: its third field is a tuple of a str and an int,
# so that it, too, is nothing for the garbage collector.

cdef extern from *:
    """
    static PyObject *aioproduce_placed_metadata(
        PyObject *type, PyObject *topic, long partition, PyObject *place, long long offset, long long timestamp,
        long timestamp_type, long long log_start_offset
    ) {
        PyTypeObject *kind = (PyTypeObject *)type;
        PyObject *metadata = kind->tp_alloc(kind, 7);
        PyObject *fields[7];
        int field;
        if (metadata == NULL) return NULL;
        Py_INCREF(topic);
        Py_INCREF(place);
        fields[0] = topic;
        fields[1] = PyLong_FromLong(partition);
        fields[2] = place;
        fields[3] = PyLong_FromLongLong(offset);
        fields[4] = PyLong_FromLongLong(timestamp);
        fields[5] = PyLong_FromLong(timestamp_type);
        fields[6] = PyLong_FromLongLong(log_start_offset);
        for (field = 0; field < 7; field++) PyTuple_SET_ITEM(metadata, field, fields[field]);
        for (field = 0; field < 7; field++) {
            if (fields[field] == NULL) {
                Py_DECREF(metadata);
                return NULL;
            }
        }
        PyObject_GC_UnTrack(metadata);
        return metadata;
    }
    """
    object placed_metadata "aioproduce_placed_metadata" (
        object type, str topic, long partition, object place, long long offset, long long timestamp,
        long timestamp_type, long long log_start_offset
    )

/* span.c - bytes that belong to a weight or to a mapped file, as a memoryview: nothing is copied, and the owner lives as long as the view. */
#include "lacpy.h"

typedef struct span {
    PyObject_HEAD;
    PyObject *owner;
    void (*gone)(PyObject *owner); /* for an owner that counts them, or NULL */
    const void *data;
    Py_ssize_t bytes;
} span;

static PyTypeObject *type_of_spans;

static int get_buffer(PyObject *object, Py_buffer *view, int flags)
{
    span *self = (span *)object;
    return PyBuffer_FillInfo(view, object, (void *)(uintptr_t)self->data, self->bytes, 1, flags);
}

static void destroy(PyObject *object)
{
    span *self = (span *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->gone) self->gone(self->owner);
    Py_DECREF(self->owner);
    PyObject_Free(self);
    Py_DECREF(type);
}

PyObject *lacpy_span_view(PyObject *owner, void (*gone)(PyObject *owner), const void *data, uint64_t bytes)
{
    if (!type_of_spans) {
        PyType_Slot slots[] = {{Py_tp_dealloc, destroy}, {Py_bf_getbuffer, get_buffer}, {0, NULL}};
        PyType_Spec spec = {.name = "lacuna._core.Span",
                            .basicsize = sizeof(span),
                            .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                            .slots = slots};
        type_of_spans = (PyTypeObject *)PyType_FromSpec(&spec);
    }
    span *self = type_of_spans ? PyObject_New(span, type_of_spans) : NULL;
    if (!self) {
        if (gone) gone(owner);
        return NULL;
    }
    self->owner = Py_NewRef(owner);
    self->gone = gone;
    self->data = data ? data : "";
    self->bytes = (Py_ssize_t)bytes;
    PyObject *view = PyMemoryView_FromObject((PyObject *)self);
    Py_DECREF(self);
    return view;
}

/* calibration.c - Calibration: what a layer's inputs are like. */
#include "lacpy.h"

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"k", NULL};
    long long k;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "L:Calibration", names, &k)) return NULL;
    lacpy_calibration *self = PyObject_New(lacpy_calibration, type);
    if (!self) return NULL;
    self->calibration = NULL;
    self->k = k;
    lac_status status = lac_calibration_create(k, &self->calibration);
    if (status == LAC_STATUS_OK) return (PyObject *)self;
    Py_DECREF(self);
    return lacpy_raise(status);
}

static void destroy(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    lac_calibration_free(((lacpy_calibration *)self)->calibration);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* The interpreter's lock is kept, since it is not safe to add to one from two threads: while one adds, nobody else reaches it. */
static PyObject *add(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"x", "threads", NULL};
    lacpy_calibration *self = (lacpy_calibration *)object;
    PyObject *x;
    int threads = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|i:add", names, &x, &threads)) return NULL;
    lacpy_array array;
    lac_matrix matrix;
    if (lacpy_matrix_get(x, "x", LACPY_READ, -1, -1, &array, &matrix) < 0) return NULL;
    lac_status status = lac_calibration_add(self->calibration, &matrix, threads);
    lacpy_array_release(&array);
    if (lacpy_check(status) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *add_moments(PyObject *object, PyObject *args)
{
    lacpy_calibration *self = (lacpy_calibration *)object;
    PyObject *moments;
    long long samples;
    if (!PyArg_ParseTuple(args, "OL:add_moments", &moments, &samples)) return NULL;
    lacpy_array array;
    lac_matrix matrix;
    if (lacpy_matrix_get(moments, "moments", LACPY_READ, self->k, self->k, &array, &matrix) < 0) return NULL;
    lac_status status = lac_calibration_add_moments(self->calibration, &matrix, samples);
    lacpy_array_release(&array);
    if (lacpy_check(status) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *error(PyObject *object, PyObject *args)
{
    lacpy_calibration *self = (lacpy_calibration *)object;
    PyObject *original, *pruned;
    if (!PyArg_ParseTuple(args, "OO:error", &original, &pruned)) return NULL;
    lacpy_array first, second;
    lac_matrix before, after;
    if (lacpy_matrix_get(original, "original", LACPY_READ, -1, self->k, &first, &before) < 0) return NULL;
    if (lacpy_matrix_get(pruned, "pruned", LACPY_READ, before.rows, self->k, &second, &after) < 0) {
        lacpy_array_release(&first);
        return NULL;
    }
    double lost = 0, total = 0;
    lac_status status = lac_calibration_error(self->calibration, &before, &after, &lost, &total);
    lacpy_array_release(&first);
    lacpy_array_release(&second);
    return lacpy_check(status) < 0 ? NULL : Py_BuildValue("(dd)", lost, total);
}

static const lacpy_field fields[] = {
    LACPY_FIELD(lac_calibration_info, k, LACPY_INT64, "inputs of the layer", NULL),
    LACPY_FIELD(lac_calibration_info, samples, LACPY_INT64, "that were added", NULL),
    LACPY_FIELD(lac_calibration_info, dead, LACPY_INT64, "inputs that were zero in every sample", NULL),
    {NULL, 0, 0, NULL, NULL}};

static PyObject *get_field(PyObject *self, void *field)
{
    lac_calibration_info info = {.size = sizeof info};
    lac_status status = lac_calibration_get_info(((lacpy_calibration *)self)->calibration, &info);
    return status == LAC_STATUS_OK ? lacpy_field_get(field, &info) : lacpy_raise(status);
}

static PyMethodDef methods[] = {
    {"add", LACPY_CALL(add, LACPY_KEYWORDS,
                       "add(x, threads=0)\n--\n\nAdds samples, x [samples, k], in as many calls as are convenient.")},
    {"add_moments", add_moments, METH_VARARGS,
     "add_moments(moments, samples)\n--\n\nAdds the sum of x x^T over so many samples, [k, k], as somebody else has formed "
     "it."},
    {"error", error, METH_VARARGS,
     "error(original, pruned)\n--\n\n(lost, total): the sum of the squares of (original - pruned) x over the samples, and that "
     "of original x."},
    {NULL, NULL, 0, NULL}};

int lacpy_calibration_init(PyObject *module)
{
    PyGetSetDef *attributes = lacpy_attributes(fields, get_field, NULL);
    if (!attributes) return -1;
    PyType_Slot slots[] = {
        {Py_tp_doc, "Calibration(k)\n--\n\nWhat a layer's k inputs are like: the sum of x x^T over samples of them."},
        {Py_tp_new, make},
        {Py_tp_dealloc, destroy},
        {Py_tp_methods, methods},
        {Py_tp_getset, attributes},
        {0, NULL}};
    PyType_Spec spec = {.name = "lacuna.Calibration",
                        .basicsize = sizeof(lacpy_calibration),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                        .slots = slots};
    return (lacpy.calibration = lacpy_type_add(module, &spec)) ? 0 : -1;
}

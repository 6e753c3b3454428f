/* calibration.c - Calibration: what a layer's inputs are like. */
#include "lacpy.h"

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"k", NULL};
    PyObject *value;
    int64_t k;
    if (lacpy_arguments("Calibration", args, kwargs, names, 1, &value, NULL) < 0 ||
        lacpy_integer("k", value, INT64_MIN, INT64_MAX, &k) < 0)
        return NULL;
    lacpy_calibration *self = PyObject_New(lacpy_calibration, type);
    if (!self) return NULL;
    self->calibration = NULL;
    self->k = k;
    pthread_rwlock_init(&self->lock, NULL); /* fails for want of resources that glibc's and musl's do not need */
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_calibration_create(k, &self->calibration);
    Py_END_ALLOW_THREADS;
    if (lacpy_check(status) < 0) Py_CLEAR(self);
    return (PyObject *)self;
}

static void destroy(PyObject *object)
{
    lacpy_calibration *self = (lacpy_calibration *)object;
    PyTypeObject *type = Py_TYPE(object);
    lac_calibration_free(self->calibration);
    pthread_rwlock_destroy(&self->lock);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *add(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"x", "threads", NULL};
    lacpy_calibration *self = (lacpy_calibration *)object;
    PyObject *values[2];
    int64_t threads = 0;
    lacpy_array array;
    lac_matrix matrix;
    if (lacpy_arguments("add", args, kwargs, names, 1, values, NULL) < 0 ||
        (values[1] && lacpy_integer("threads", values[1], INT32_MIN, INT32_MAX, &threads) < 0) ||
        lacpy_matrix_get(values[0], "x", LACPY_READ, -1, self->k, &array, &matrix) < 0)
        return NULL;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    pthread_rwlock_wrlock(&self->lock);
    status = lac_calibration_add(self->calibration, &matrix, (int32_t)threads);
    pthread_rwlock_unlock(&self->lock);
    Py_END_ALLOW_THREADS;
    int checked = lacpy_check(status);
    lacpy_array_release(&array);
    return checked < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *add_moments(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"moments", "samples", NULL};
    lacpy_calibration *self = (lacpy_calibration *)object;
    PyObject *values[2];
    int64_t samples;
    lacpy_array array;
    lac_matrix matrix;
    if (lacpy_arguments("add_moments", args, kwargs, names, 2, values, NULL) < 0 ||
        lacpy_integer("samples", values[1], INT64_MIN, INT64_MAX, &samples) < 0 ||
        lacpy_matrix_get(values[0], "moments", LACPY_READ, self->k, self->k, &array, &matrix) < 0)
        return NULL;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    pthread_rwlock_wrlock(&self->lock);
    status = lac_calibration_add_moments(self->calibration, &matrix, samples);
    pthread_rwlock_unlock(&self->lock);
    Py_END_ALLOW_THREADS;
    int checked = lacpy_check(status);
    lacpy_array_release(&array);
    return checked < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *error(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"original", "pruned", NULL};
    lacpy_calibration *self = (lacpy_calibration *)object;
    PyObject *values[2];
    lacpy_array first, second;
    lac_matrix before, after;
    if (lacpy_arguments("error", args, kwargs, names, 2, values, NULL) < 0 ||
        lacpy_matrix_get(values[0], "original", LACPY_READ, -1, self->k, &first, &before) < 0)
        return NULL;
    if (lacpy_matrix_get(values[1], "pruned", LACPY_READ, before.rows, self->k, &second, &after) < 0) {
        lacpy_array_release(&first);
        return NULL;
    }
    double lost = 0, total = 0;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    pthread_rwlock_rdlock(&self->lock);
    status = lac_calibration_error(self->calibration, &before, &after, &lost, &total);
    pthread_rwlock_unlock(&self->lock);
    Py_END_ALLOW_THREADS;
    int checked = lacpy_check(status);
    lacpy_array_release(&first);
    lacpy_array_release(&second);
    return checked < 0 ? NULL : Py_BuildValue("(dd)", lost, total);
}

static const lacpy_field fields[] = {
    LACPY_FIELD(lac_calibration_info, k, LACPY_INT64, "inputs of the layer", NULL),
    LACPY_FIELD(lac_calibration_info, samples, LACPY_INT64, "that were added", NULL),
    LACPY_FIELD(lac_calibration_info, dead, LACPY_INT64, "inputs that were zero in every sample", NULL),
    {NULL, 0, 0, NULL, NULL}};

static PyObject *get_field(PyObject *object, void *field)
{
    lacpy_calibration *self = (lacpy_calibration *)object;
    lac_calibration_info info = {.size = sizeof info};
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    pthread_rwlock_rdlock(&self->lock);
    status = lac_calibration_get_info(self->calibration, &info);
    pthread_rwlock_unlock(&self->lock);
    Py_END_ALLOW_THREADS;
    return lacpy_check(status) < 0 ? NULL : lacpy_field_get(field, &info);
}

static PyObject *represent(PyObject *object)
{
    return PyUnicode_FromFormat("<lacuna.Calibration of %lld inputs>", (long long)((lacpy_calibration *)object)->k);
}

static PyMethodDef methods[] = {
    {"add", LACPY_CALL(add, LACPY_KEYWORDS,
                       "add(x, threads=0)\n--\n\nAdds samples, x [samples, k], in as many calls as are convenient.")},
    {"add_moments", LACPY_CALL(add_moments, LACPY_KEYWORDS,
                               "add_moments(moments, samples)\n--\n\nAdds the sum of x x^T over so many samples, [k, k], as "
                               "somebody else has formed it.")},
    {"error",
     LACPY_CALL(error, LACPY_KEYWORDS,
                "error(original, pruned)\n--\n\n(lost, total): the sum of the squares of (original - pruned) x over the "
                "samples, and that of original x.")},
    {NULL, NULL, 0, NULL}};

int lacpy_calibration_init(PyObject *module)
{
    PyGetSetDef *attributes = lacpy_attributes(fields, get_field, NULL);
    if (!attributes) return -1;
    PyType_Slot slots[] = {
        {Py_tp_doc, "Calibration(k)\n--\n\nWhat a layer's k inputs are like: the sum of x x^T over samples of them."},
        {Py_tp_new, make},
        {Py_tp_dealloc, destroy},
        {Py_tp_repr, represent},
        {Py_tp_methods, methods},
        {Py_tp_getset, attributes},
        {0, NULL}};
    PyType_Spec spec = {.name = "lacuna.Calibration",
                        .basicsize = sizeof(lacpy_calibration),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                        .slots = slots};
    return (lacpy.calibration = lacpy_type_add(module, &spec)) ? 0 : -1;
}

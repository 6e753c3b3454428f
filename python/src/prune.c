/* prune.c - prune() and prune_and_correct(), and the options of pruning, which checkpoints have too. */
#include <stdio.h>

#include "lacpy.h"

/* ---- options of pruning */

static const lacpy_field option_fields[] = {LACPY_FIELD(lac_prune_options, score, LACPY_ENUM, "", lacpy_scores),
                                            LACPY_FIELD(lac_prune_options, threads, LACPY_INT32, "", NULL),
                                            LACPY_FIELD(lac_prune_options, method, LACPY_ENUM, "", lacpy_methods),
                                            LACPY_FIELD(lac_prune_options, damping, LACPY_DOUBLE, "", NULL),
                                            LACPY_FIELD(lac_prune_options, permute, LACPY_FLAGS, "", lacpy_permutations),
                                            LACPY_FIELD(lac_prune_options, permute_rounds, LACPY_INT32, "", NULL),
                                            LACPY_FIELD(lac_prune_options, transposable, LACPY_BOOL, "", NULL),
                                            {NULL, 0, 0, NULL, NULL}};

/* gradients: [samples, n, k] without gaps. */
static int read_gradients(lacpy_prune_options *held, PyObject *object)
{
    lacpy_array *array = &held->gradient_array;
    if (lacpy_array_get(object, "gradients", LACPY_READ, NULL, array) < 0) return -1;
    bool packed = array->dimensions == 3 && !array->on_gpu;
    int64_t next = 1;
    for (int i = 2; packed && i >= 0; i--) {
        packed = array->shape[i] <= 1 || array->stride[i] == next;
        next *= array->shape[i];
    }
    if (!packed) {
        lacpy_raise_shape(array, "gradients", "(samples, n, k) in the host's memory, without gaps");
        return -1;
    }
    held->gradients =
        (lac_gradients){.size = sizeof held->gradients, .data = array->data, .dtype = array->dtype, .samples = array->shape[0]};
    held->options.gradients = &held->gradients;
    return 0;
}

static int read_calibration(lacpy_prune_options *held, PyObject *object)
{
    if (!PyObject_TypeCheck(object, lacpy.calibration)) {
        PyErr_Format(PyExc_TypeError, "calibration is %R; it must be a Calibration", object);
        return -1;
    }
    held->calibration = (lacpy_calibration *)Py_NewRef(object);
    held->options.calibration = held->calibration->calibration;
    return 0;
}

static int read_objects(lacpy_prune_options *held, bool of_checkpoint, PyObject *rest)
{
    PyObject *calibration = of_checkpoint ? NULL : lacpy_take(rest, "calibration"),
             *gradients = of_checkpoint ? NULL : lacpy_take(rest, "gradients"), *schedule = lacpy_take(rest, "schedule"),
             *device = lacpy_take(rest, "device");
    int result = calibration ? read_calibration(held, calibration) : 0;
    if (!result && gradients) result = read_gradients(held, gradients);
    if (!result) result = lacpy_patterns_of(schedule, "schedule", &held->schedule, &held->options.schedule_count);
    held->options.schedule = held->schedule;
    if (!result && device) {
        held->device = (PyObject *)lacpy_device_of(device);
        if (held->device)
            held->options.device = ((lacpy_device *)held->device)->device;
        else
            result = -1;
    }
    Py_XDECREF(calibration);
    Py_XDECREF(gradients);
    Py_XDECREF(schedule);
    Py_XDECREF(device);
    return result;
}

int lacpy_prune_options_parse(lacpy_prune_options *held, const char *function, PyObject *kwargs, bool of_checkpoint,
                              PyObject **rest)
{
    *held = (lacpy_prune_options){.options = {.size = sizeof held->options}};
    PyObject *others = NULL;
    int result = lacpy_fields_parse(option_fields, &held->options, function, kwargs, &others);
    if (!result) result = read_objects(held, of_checkpoint, others);
    if (!result && !rest) result = lacpy_none_left(function, others);
    if (result < 0) lacpy_prune_options_release(held);
    if (!result && rest)
        *rest = others;
    else
        Py_XDECREF(others);
    return result;
}

void lacpy_prune_options_release(lacpy_prune_options *held)
{
    lacpy_array_release(&held->gradient_array);
    PyMem_Free(held->schedule);
    held->schedule = NULL;
    Py_XDECREF((PyObject *)held->calibration);
    held->calibration = NULL;
    Py_CLEAR(held->device);
}

/* The library sees neither n nor k of the gradients, which must be those of the matrix. */
static int check_gradients(const lacpy_prune_options *held, const lac_matrix *matrix)
{
    const lacpy_array *g = &held->gradient_array;
    if (!held->options.gradients || (g->shape[1] == matrix->rows && g->shape[2] == matrix->cols)) return 0;
    char wanted[64];
    snprintf(wanted, sizeof wanted, "(samples, %lld, %lld)", (long long)matrix->rows, (long long)matrix->cols);
    lacpy_raise_shape(g, "gradients", wanted);
    return -1;
}

static void lock(const lacpy_prune_options *held)
{
    if (held->calibration) pthread_rwlock_rdlock(&held->calibration->lock);
}

static void unlock(const lacpy_prune_options *held)
{
    if (held->calibration) pthread_rwlock_unlock(&held->calibration->lock);
}

/* ---- pruning */

static PyObject *prune(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"w", "pattern", NULL};
    (void)module;
    PyObject *values[2], *rest = NULL, *result = NULL;
    lacpy_prune_options held;
    lac_pattern pattern;
    lacpy_array array;
    lac_matrix matrix;
    if (lacpy_arguments("prune", args, kwargs, names, 2, values, &rest) < 0) return NULL;
    if (lacpy_pattern_of(values[1], "pattern", &pattern) < 0 ||
        lacpy_prune_options_parse(&held, "prune", rest, false, NULL) < 0) {
        Py_DECREF(rest);
        return NULL;
    }
    if (lacpy_matrix_get(values[0], "w", LACPY_READ, -1, -1, &array, &matrix) == 0) {
        lac_mask *mask = NULL;
        lac_status status;
        int checked = check_gradients(&held, &matrix);
        if (!checked) {
            Py_BEGIN_ALLOW_THREADS;
            lock(&held);
            status = lac_prune(&matrix, &pattern, &held.options, &mask);
            unlock(&held);
            Py_END_ALLOW_THREADS;
            checked = lacpy_check(status);
        }
        lacpy_array_release(&array);
        result = lacpy_mask_made(checked, mask);
    }
    lacpy_prune_options_release(&held);
    Py_DECREF(rest);
    return result;
}

/* The mask, and what stays in `target`. */
static PyObject *correct_into(const lac_matrix *matrix, const lacpy_array *from, const lac_pattern *pattern,
                              const lacpy_prune_options *held, PyObject *target)
{
    lacpy_array to;
    lac_matrix corrected;
    if (lacpy_matrix_get(target, "out", LACPY_WRITE, matrix->rows, matrix->cols, &to, &corrected) < 0) return NULL;
    lac_mask *mask = NULL;
    lac_status status;
    int checked = check_gradients(held, matrix);
    bool is_same =
        to.data == from->data && to.dtype == from->dtype && corrected.layout == matrix->layout && corrected.ld == matrix->ld;
    if (!checked && !is_same && lacpy_array_meets(from, &to)) {
        PyErr_SetString(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT],
                        "out shares memory with w; it must be w itself, or lie elsewhere");
        checked = -1;
    }
    if (!checked) {
        Py_BEGIN_ALLOW_THREADS;
        lock(held);
        status = lac_prune_and_correct(matrix, pattern, &held->options, &corrected, &mask);
        unlock(held);
        Py_END_ALLOW_THREADS;
        checked = lacpy_check(status);
    }
    lacpy_array_release(&to);
    return lacpy_mask_made(checked, mask);
}

/* (Mask, corrected): corrected is `out`, or a new array of w's kind. */
static PyObject *correct(PyObject *dense, const lac_pattern *pattern, const lacpy_prune_options *held, PyObject *out)
{
    lacpy_array from;
    lac_matrix matrix;
    if (lacpy_matrix_get(dense, "w", LACPY_READ, -1, -1, &from, &matrix) < 0) return NULL;
    const int64_t shape[2] = {matrix.rows, matrix.cols};
    PyObject *target = out ? Py_NewRef(out) : lacpy_array_new(dense, 2, shape, matrix.dtype, LAC_LAYOUT_ROW_MAJOR, NULL);
    PyObject *mask = target ? correct_into(&matrix, &from, pattern, held, target) : NULL;
    lacpy_array_release(&from);
    PyObject *pair = mask ? PyTuple_Pack(2, mask, target) : NULL;
    Py_XDECREF(mask);
    Py_XDECREF(target);
    return pair;
}

static PyObject *prune_and_correct(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"w", "pattern", NULL};
    (void)module;
    PyObject *values[2], *rest = NULL, *others = NULL, *result = NULL;
    lacpy_prune_options held;
    lac_pattern pattern;
    if (lacpy_arguments("prune_and_correct", args, kwargs, names, 2, values, &rest) < 0) return NULL;
    if (lacpy_pattern_of(values[1], "pattern", &pattern) == 0 &&
        lacpy_prune_options_parse(&held, "prune_and_correct", rest, false, &others) == 0) {
        PyObject *out = lacpy_take(others, "out");
        if (lacpy_none_left("prune_and_correct", others) == 0) result = correct(values[0], &pattern, &held, out);
        Py_XDECREF(out);
        Py_DECREF(others);
        lacpy_prune_options_release(&held);
    }
    Py_DECREF(rest);
    return result;
}

static PyMethodDef functions[] = {
    {"prune",
     LACPY_CALL(prune, LACPY_KEYWORDS,
                "prune(w, pattern, *, method='magnitude', score='l2', calibration=None, gradients=None, damping=0.01, "
                "permute=(), permute_rounds=100, "
                "transposable=False, schedule=(), device=None, threads=0)\n--\n\nChooses what of w, [n, k], stays: a Mask.")},
    {"prune_and_correct",
     LACPY_CALL(prune_and_correct, LACPY_KEYWORDS,
                "prune_and_correct(w, pattern, *, out=None, method='magnitude', score='l2', calibration=None, gradients=None, "
                "damping=0.01, permute=(), "
                "permute_rounds=100, transposable=False, schedule=(), device=None, threads=0)\n--\n\n(Mask, corrected): "
                "likewise, and what stays as an array "
                "with zeros for what goes; by 'obs' and 'fisher' it has made up for that. out may be w itself.")},
    {NULL, NULL, 0, NULL}};

int lacpy_prune_init(PyObject *module) { return PyModule_AddFunctions(module, functions); }

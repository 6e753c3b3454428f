/* mask.c - Mask, and pruning one matrix. */
#include <string.h>

#include "lacpy.h"

static const lacpy_field fields[] = {
    LACPY_FIELD(lac_mask_info, n, LACPY_INT64, "rows: the outputs", NULL),
    LACPY_FIELD(lac_mask_info, k, LACPY_INT64, "columns: the inputs", NULL),
    LACPY_FIELD(lac_mask_info, kept, LACPY_INT64, "elements that stay", NULL),
    LACPY_FIELD(lac_mask_info, pattern, LACPY_PATTERN, "its Pattern; None for a bare mask", NULL),
    {NULL, 0, 0, NULL, NULL}};

PyObject *lacpy_mask_wrap(lac_mask *mask)
{
    lacpy_mask *self = PyObject_New(lacpy_mask, lacpy.mask);
    if (!self) {
        lac_mask_free(mask);
        return NULL;
    }
    self->mask = mask;
    self->info = (lac_mask_info){.size = sizeof self->info};
    lac_status status = lac_mask_get_info(mask, &self->info);
    if (status != LAC_STATUS_OK) {
        Py_DECREF(self);
        return lacpy_raise(status);
    }
    if (!self->info.has_pattern) self->info.pattern = (lac_pattern){0};
    return (PyObject *)self;
}

static void destroy(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    lac_mask_free(((lacpy_mask *)self)->mask);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* ---- options of pruning */

static const lacpy_name permutations[] = {{"rows", LAC_PERMUTE_ROWS}, {"columns", LAC_PERMUTE_COLUMNS}, {NULL, 0}};

static const lacpy_field option_fields[] = {LACPY_FIELD(lac_prune_options, score, LACPY_ENUM, "", lacpy_scores),
                                            LACPY_FIELD(lac_prune_options, threads, LACPY_INT32, "", NULL),
                                            LACPY_FIELD(lac_prune_options, method, LACPY_ENUM, "", lacpy_methods),
                                            LACPY_FIELD(lac_prune_options, damping, LACPY_DOUBLE, "", NULL),
                                            LACPY_FIELD(lac_prune_options, permute, LACPY_FLAGS, "", permutations),
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
        PyErr_SetString(PyExc_ValueError, "gradients must be [samples, n, k] in the host's memory, without gaps");
        return -1;
    }
    held->gradients =
        (lac_gradients){.size = sizeof held->gradients, .data = array->data, .dtype = array->dtype, .samples = array->shape[0]};
    held->options.gradients = &held->gradients;
    return 0;
}

static int read_objects(lacpy_prune_options *held)
{
    PyObject *calibration = lacpy_take(held->rest, "calibration"), *gradients = lacpy_take(held->rest, "gradients"),
             *schedule = lacpy_take(held->rest, "schedule"), *device = lacpy_take(held->rest, "device");
    int result = 0;
    if (calibration && !PyObject_TypeCheck(calibration, lacpy.calibration)) {
        PyErr_Format(PyExc_TypeError, "calibration is %R; it must be a Calibration", calibration);
        result = -1;
    } else if (calibration) {
        held->options.calibration = ((lacpy_calibration *)calibration)->calibration; /* the caller's kwargs hold it */
    }
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

int lacpy_prune_options_parse(lacpy_prune_options *held, const char *function, PyObject *kwargs, PyObject **rest)
{
    *held = (lacpy_prune_options){.options = {.size = sizeof held->options}};
    int result = lacpy_fields_parse(option_fields, &held->options, function, kwargs, &held->rest);
    if (!result) result = read_objects(held);
    if (!result && !rest) result = lacpy_none_left(function, held->rest);
    if (result < 0) {
        lacpy_prune_options_release(held);
        return -1;
    }
    if (rest) *rest = Py_NewRef(held->rest);
    return 0;
}

void lacpy_prune_options_release(lacpy_prune_options *held)
{
    lacpy_array_release(&held->gradient_array);
    PyMem_Free(held->schedule);
    held->schedule = NULL;
    Py_CLEAR(held->rest);
    Py_CLEAR(held->device);
}

/* ---- pruning */

static PyObject *prune(PyObject *module, PyObject *args, PyObject *kwargs)
{
    (void)module;
    PyObject *dense, *text;
    if (!PyArg_ParseTuple(args, "OO:prune", &dense, &text)) return NULL;
    lacpy_prune_options held;
    lac_pattern pattern;
    lacpy_array array;
    lac_matrix matrix;
    if (lacpy_pattern_of(text, "pattern", &pattern) < 0 || lacpy_prune_options_parse(&held, "prune", kwargs, NULL) < 0)
        return NULL;
    if (lacpy_matrix_get(dense, "w", LACPY_READ, -1, -1, &array, &matrix) < 0) {
        lacpy_prune_options_release(&held);
        return NULL;
    }
    lac_mask *mask = NULL;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_prune(&matrix, &pattern, &held.options, &mask);
    Py_END_ALLOW_THREADS;
    lacpy_array_release(&array);
    lacpy_prune_options_release(&held);
    if (lacpy_check(status) < 0) return NULL;
    return lacpy_mask_wrap(mask);
}

/* (Mask, corrected): corrected is `out`, or a new array of w's kind. */
static PyObject *correct(PyObject *dense, const lac_pattern *pattern, const lac_prune_options *options, PyObject *out)
{
    lacpy_array from, to;
    lac_matrix matrix, corrected;
    if (lacpy_matrix_get(dense, "w", LACPY_READ, -1, -1, &from, &matrix) < 0) return NULL;
    const int64_t shape[2] = {matrix.rows, matrix.cols};
    PyObject *target = out ? Py_NewRef(out) : lacpy_array_new(dense, 2, shape, matrix.dtype, LAC_LAYOUT_ROW_MAJOR);
    if (!target || lacpy_matrix_get(target, "out", LACPY_WRITE, matrix.rows, matrix.cols, &to, &corrected) < 0) {
        Py_XDECREF(target);
        lacpy_array_release(&from);
        return NULL;
    }
    lac_mask *mask = NULL;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_prune_and_correct(&matrix, pattern, options, &corrected, &mask);
    Py_END_ALLOW_THREADS;
    lacpy_array_release(&from);
    lacpy_array_release(&to);
    PyObject *made = lacpy_check(status) < 0 ? NULL : lacpy_mask_wrap(mask);
    PyObject *pair = made ? PyTuple_Pack(2, made, target) : NULL;
    Py_XDECREF(made);
    Py_DECREF(target);
    return pair;
}

static PyObject *prune_and_correct(PyObject *module, PyObject *args, PyObject *kwargs)
{
    (void)module;
    PyObject *dense, *text, *rest = NULL;
    if (!PyArg_ParseTuple(args, "OO:prune_and_correct", &dense, &text)) return NULL;
    lacpy_prune_options held;
    lac_pattern pattern;
    if (lacpy_pattern_of(text, "pattern", &pattern) < 0 ||
        lacpy_prune_options_parse(&held, "prune_and_correct", kwargs, &rest) < 0)
        return NULL;
    PyObject *out = lacpy_take(rest, "out"), *result = NULL;
    if (lacpy_none_left("prune_and_correct", rest) == 0) result = correct(dense, &pattern, &held.options, out);
    Py_XDECREF(out);
    Py_DECREF(rest);
    lacpy_prune_options_release(&held);
    return result;
}

/* ---- methods */

static PyObject *from_matrix(PyObject *type, PyObject *args)
{
    PyObject *dense, *text;
    (void)type;
    if (!PyArg_ParseTuple(args, "OO:from_matrix", &dense, &text)) return NULL;
    lac_pattern pattern;
    lacpy_array array;
    lac_matrix matrix;
    if (lacpy_pattern_of(text, "pattern", &pattern) < 0 ||
        lacpy_matrix_get(dense, "w", LACPY_READ, -1, -1, &array, &matrix) < 0)
        return NULL;
    lac_mask *mask = NULL;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_mask_from_matrix(&matrix, &pattern, &mask);
    Py_END_ALLOW_THREADS;
    lacpy_array_release(&array);
    return lacpy_check(status) < 0 ? NULL : lacpy_mask_wrap(mask);
}

static PyObject *from_nonzeros(PyObject *type, PyObject *dense)
{
    (void)type;
    lacpy_array array;
    lac_matrix matrix;
    if (lacpy_matrix_get(dense, "w", LACPY_READ, -1, -1, &array, &matrix) < 0) return NULL;
    lac_mask *mask = NULL;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_mask_from_nonzeros(&matrix, &mask);
    Py_END_ALLOW_THREADS;
    lacpy_array_release(&array);
    return lacpy_check(status) < 0 ? NULL : lacpy_mask_wrap(mask);
}

static PyObject *with_pattern(PyObject *self, PyObject *text)
{
    lac_pattern pattern;
    if (lacpy_pattern_of(text, "pattern", &pattern) < 0) return NULL;
    lac_mask *mask = NULL;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_mask_with_pattern(((lacpy_mask *)self)->mask, &pattern, &mask);
    Py_END_ALLOW_THREADS;
    return lacpy_check(status) < 0 ? NULL : lacpy_mask_wrap(mask);
}

static PyObject *apply(PyObject *object, PyObject *dense)
{
    lacpy_mask *self = (lacpy_mask *)object;
    lacpy_array array;
    lac_matrix matrix;
    if (lacpy_matrix_get(dense, "w", LACPY_WRITE, self->info.n, self->info.k, &array, &matrix) < 0) return NULL;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_mask_apply(self->mask, &matrix);
    Py_END_ALLOW_THREADS;
    lacpy_array_release(&array);
    if (lacpy_check(status) < 0) return NULL;
    return Py_NewRef(dense);
}

static PyObject *energy(PyObject *object, PyObject *dense)
{
    lacpy_mask *self = (lacpy_mask *)object;
    lacpy_array array;
    lac_matrix matrix;
    if (lacpy_matrix_get(dense, "w", LACPY_READ, self->info.n, self->info.k, &array, &matrix) < 0) return NULL;
    double kept = 0, total = 0;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_mask_energy(self->mask, &matrix, &kept, &total);
    Py_END_ALLOW_THREADS;
    lacpy_array_release(&array);
    return lacpy_check(status) < 0 ? NULL : Py_BuildValue("(dd)", kept, total);
}

/* An order of `count` rows or columns, as u32; *out is NULL when there is none, else to be released by PyMem_Free. */
static int read_order(PyObject *object, const char *name, int64_t count, uint32_t **out)
{
    *out = NULL;
    if (!object || object == Py_None) return 0;
    Py_ssize_t length = PySequence_Size(object);
    if (length < 0) return -1;
    if (length != count) {
        PyErr_Format(PyExc_ValueError, "%s has %zd numbers; it must have %lld", name, length, (long long)count);
        return -1;
    }
    uint32_t *order = PyMem_Malloc((size_t)(count ? count : 1) * sizeof *order);
    if (!order) return (PyErr_NoMemory(), -1);
    for (Py_ssize_t i = 0; i < length; i++) {
        PyObject *item = PySequence_GetItem(object, i), *index = item ? PyNumber_Index(item) : NULL;
        long long number = index ? PyLong_AsLongLong(index) : -1;
        Py_XDECREF(item);
        Py_XDECREF(index);
        if (!PyErr_Occurred() && (number < 0 || number > UINT32_MAX))
            PyErr_Format(PyExc_ValueError, "%s[%zd] is %lld; it must be from 0 to %lld", name, i, number, (long long)count - 1);
        if (PyErr_Occurred()) {
            PyMem_Free(order);
            return -1;
        }
        order[i] = (uint32_t)number;
    }
    *out = order;
    return 0;
}

static PyObject *reorder(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"rows", "cols", NULL};
    lacpy_mask *self = (lacpy_mask *)object;
    PyObject *rows = NULL, *cols = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO:reorder", names, &rows, &cols)) return NULL;
    uint32_t *row_order = NULL, *col_order = NULL;
    if (read_order(rows, "rows", self->info.n, &row_order) < 0 || read_order(cols, "cols", self->info.k, &col_order) < 0) {
        PyMem_Free(row_order);
        return NULL;
    }
    lac_mask *mask = NULL;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_mask_reorder(self->mask, row_order, col_order, &mask);
    Py_END_ALLOW_THREADS;
    PyMem_Free(row_order);
    PyMem_Free(col_order);
    return lacpy_check(status) < 0 ? NULL : lacpy_mask_wrap(mask);
}

static PyObject *to_numpy(PyObject *object, PyObject *unused)
{
    (void)unused;
    lacpy_mask *self = (lacpy_mask *)object;
    PyObject *array =
        PyObject_CallFunction(lacpy.empty, "O(LL)si", Py_None, (long long)self->info.n, (long long)self->info.k, "bool", 0);
    Py_buffer buffer;
    if (!array || PyObject_GetBuffer(array, &buffer, PyBUF_WRITABLE) < 0) {
        Py_XDECREF(array);
        return NULL;
    }
    uint8_t *stays = buffer.buf; /* [n][k] */
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t row = 0; row < self->info.n; row++)
        for (int64_t col = 0; col < self->info.k; col++)
            stays[row * self->info.k + col] = (uint8_t)lac_mask_get(self->mask, row, col);
    Py_END_ALLOW_THREADS;
    PyBuffer_Release(&buffer);
    return array;
}

static PyObject *save_smtx(PyObject *self, PyObject *path)
{
    PyObject *bytes = lacpy_path(path);
    if (!bytes) return NULL;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_mask_save_smtx(((lacpy_mask *)self)->mask, PyBytes_AsString(bytes));
    Py_END_ALLOW_THREADS;
    Py_DECREF(bytes);
    if (lacpy_check(status) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *get_field(PyObject *self, void *field) { return lacpy_field_get(field, &((lacpy_mask *)self)->info); }

static PyObject *get_shape(PyObject *self, void *unused)
{
    (void)unused;
    return Py_BuildValue("(LL)", (long long)((lacpy_mask *)self)->info.n, (long long)((lacpy_mask *)self)->info.k);
}

static PyObject *get_row_perm(PyObject *object, void *unused)
{
    (void)unused;
    const lac_mask_info *info = &((lacpy_mask *)object)->info;
    return info->row_perm ? lacpy_array_of_u32(info->row_perm, info->n) : Py_NewRef(Py_None);
}

static PyObject *get_col_perm(PyObject *object, void *unused)
{
    (void)unused;
    const lac_mask_info *info = &((lacpy_mask *)object)->info;
    return info->col_perm ? lacpy_array_of_u32(info->col_perm, info->k) : Py_NewRef(Py_None);
}

static PyObject *represent(PyObject *object)
{
    const lac_mask_info *info = &((lacpy_mask *)object)->info;
    char text[LAC_PATTERN_TEXT_SIZE] = "no pattern";
    if (info->has_pattern && lac_pattern_format(&info->pattern, text, sizeof text) != LAC_STATUS_OK) text[0] = '\0';
    return PyUnicode_FromFormat("<lacuna.Mask %lld x %lld, %s, %lld kept>", (long long)info->n, (long long)info->k, text,
                                (long long)info->kept);
}

static PyMethodDef methods[] = {
    {"from_matrix", from_matrix, METH_VARARGS | METH_STATIC,
     "from_matrix(w, pattern)\n--\n\nThe mask of a matrix that is pruned already; raises PatternViolated where it does not "
     "obey the pattern."},
    {"from_nonzeros", from_nonzeros, METH_O | METH_STATIC, "from_nonzeros(w)\n--\n\nA bare mask: the nonzeros of w."},
    {"with_pattern", with_pattern, METH_O, "with_pattern(pattern)\n--\n\nThe same mask under a pattern that it obeys."},
    {"apply", apply, METH_O, "apply(w)\n--\n\nZeroes what the mask drops, in place, and returns w."},
    {"energy", energy, METH_O,
     "energy(w)\n--\n\n(kept, total): sums of the squares of the finite weights that stay, and of all."},
    {"reorder", LACPY_CALL(reorder, LACPY_KEYWORDS,
                           "reorder(rows=None, cols=None)\n--\n\nThe mask of W with its rows and columns in another order: row "
                           "i of it is row rows[i].")},
    {"numpy", to_numpy, METH_NOARGS, "numpy()\n--\n\nA new [n, k] array of bool: what stays."},
    {"save_smtx", save_smtx, METH_O, "save_smtx(path)\n--\n\nWrites it as an .smtx file, whole or not at all."},
    {NULL, NULL, 0, NULL}};

static const PyGetSetDef more_attributes[] = {
    {"shape", get_shape, NULL, "(n, k)", NULL},
    {"row_perm", get_row_perm, NULL, "[n] the row of W that stands i-th; None when in order", NULL},
    {"col_perm", get_col_perm, NULL, "[k] the column of W that stands j-th; None when in order", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

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

int lacpy_mask_init(PyObject *module)
{
    PyGetSetDef *attributes = lacpy_attributes(fields, get_field, more_attributes);
    if (!attributes) return -1;
    PyType_Slot slots[] = {
        {Py_tp_doc,
         "Which elements of an n x k matrix stay, under which pattern. Made by prune() and by the from_... functions."},
        {Py_tp_dealloc, destroy},
        {Py_tp_repr, represent},
        {Py_tp_methods, methods},
        {Py_tp_getset, attributes},
        {0, NULL}};
    PyType_Spec spec = {.name = "lacuna.Mask",
                        .basicsize = sizeof(lacpy_mask),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                        .slots = slots};
    if (!(lacpy.mask = lacpy_type_add(module, &spec))) return -1;
    return PyModule_AddFunctions(module, functions);
}

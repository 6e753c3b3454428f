/* mask.c - Mask: which elements stay. */
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

PyObject *lacpy_mask_made(int checked, lac_mask *mask)
{
    if (checked == 0) return lacpy_mask_wrap(mask);
    lac_mask_free(mask); /* it may have been made, and a handler of what was logged have raised */
    return NULL;
}

static void destroy(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    lac_mask_free(((lacpy_mask *)self)->mask);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* ---- methods */

static PyObject *from_matrix(PyObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"w", "pattern", NULL};
    PyObject *values[2];
    (void)type;
    if (lacpy_arguments("from_matrix", args, kwargs, names, 2, values, NULL) < 0) return NULL;
    PyObject *dense = values[0], *text = values[1];
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
    int checked = lacpy_check(status);
    lacpy_array_release(&array);
    return lacpy_mask_made(checked, mask);
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
    int checked = lacpy_check(status);
    lacpy_array_release(&array);
    return lacpy_mask_made(checked, mask);
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
    return lacpy_mask_made(lacpy_check(status), mask);
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
    int checked = lacpy_check(status);
    lacpy_array_release(&array);
    return checked < 0 ? NULL : Py_NewRef(dense);
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
    int checked = lacpy_check(status);
    lacpy_array_release(&array);
    return checked < 0 ? NULL : Py_BuildValue("(dd)", kept, total);
}

/* An order of `count` rows or columns, as u32; *out is NULL when there is none, else to be released by PyMem_Free. */
static int read_order(PyObject *object, const char *name, int64_t count, uint32_t **out)
{
    *out = NULL;
    if (!object || object == Py_None) return 0;
    PyObject *items = PySequence_Tuple(object);
    if (!items) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_Format(PyExc_TypeError, "%s is %R; it must be a sequence of int", name, object);
        return -1;
    }
    int result = PyTuple_Size(items) == count ? 0 : -1;
    if (result < 0)
        PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT], "%s has %zd numbers; it must have %lld", name,
                     PyTuple_Size(items), (long long)count);
    uint32_t *order = result ? NULL : PyMem_Malloc((size_t)(count ? count : 1) * sizeof *order);
    if (!result && !order) result = (PyErr_NoMemory(), -1);
    for (int64_t i = 0; !result && i < count; i++) {
        int64_t number;
        result = lacpy_integer(name, PyTuple_GetItem(items, i), 0, count - 1, &number);
        if (!result) order[i] = (uint32_t)number;
    }
    Py_DECREF(items);
    if (result < 0)
        PyMem_Free(order);
    else
        *out = order;
    return result;
}

static PyObject *reorder(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"rows", "cols", NULL};
    lacpy_mask *self = (lacpy_mask *)object;
    PyObject *values[2];
    if (lacpy_arguments("reorder", args, kwargs, names, 0, values, NULL) < 0) return NULL;
    uint32_t *row_order = NULL, *col_order = NULL;
    if (read_order(values[0], "rows", self->info.n, &row_order) < 0 ||
        read_order(values[1], "cols", self->info.k, &col_order) < 0) {
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
    return lacpy_mask_made(lacpy_check(status), mask);
}

static PyObject *to_numpy(PyObject *object, PyObject *unused)
{
    (void)unused;
    lacpy_mask *self = (lacpy_mask *)object;
    PyObject *array =
        PyObject_CallFunction(lacpy.empty, "O(LL)s", Py_None, (long long)self->info.n, (long long)self->info.k, "bool");
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
    PyObject *bytes = lacpy_path("path", path);
    if (!bytes) return NULL;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_mask_save_smtx(((lacpy_mask *)self)->mask, PyBytes_AsString(bytes));
    Py_END_ALLOW_THREADS;
    int checked = lacpy_check(status);
    Py_DECREF(bytes);
    return checked < 0 ? NULL : Py_NewRef(Py_None);
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
    {"from_matrix", LACPY_CALL(from_matrix, LACPY_KEYWORDS | METH_STATIC,
                               "from_matrix(w, pattern)\n--\n\nThe mask of a matrix that is pruned already; raises "
                               "PatternViolated where it does not obey the pattern.")},
    {"from_nonzeros", from_nonzeros, METH_O | METH_STATIC, "from_nonzeros(w, /)\n--\n\nA bare mask: the nonzeros of w."},
    {"with_pattern", with_pattern, METH_O, "with_pattern(pattern, /)\n--\n\nThe same mask under a pattern that it obeys."},
    {"apply", apply, METH_O, "apply(w, /)\n--\n\nZeroes what the mask drops, in place, and returns w."},
    {"energy", energy, METH_O,
     "energy(w, /)\n--\n\n(kept, total): sums of the squares of the finite weights that stay, and of all."},
    {"reorder", LACPY_CALL(reorder, LACPY_KEYWORDS,
                           "reorder(rows=None, cols=None)\n--\n\nThe mask of W with its rows and columns in another order: row "
                           "i of it is row rows[i].")},
    {"numpy", to_numpy, METH_NOARGS, "numpy()\n--\n\nA new [n, k] array of bool: what stays."},
    {"save_smtx", save_smtx, METH_O, "save_smtx(path, /)\n--\n\nWrites it as an .smtx file, whole or not at all."},
    LACPY_COPIES,
    {NULL, NULL, 0, NULL}};

static const PyGetSetDef more_attributes[] = {
    {"shape", get_shape, NULL, "(n, k)", NULL},
    {"row_perm", get_row_perm, NULL, "[n] the row of W that stands i-th; None when in order", NULL},
    {"col_perm", get_col_perm, NULL, "[k] the column of W that stands j-th; None when in order", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

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
    return (lacpy.mask = lacpy_type_add(module, &spec)) ? 0 : -1;
}

/* pattern.c - Pattern: which units of a weight stay. Wherever a pattern is wanted, its text will do. */
#include <string.h>

#include "lacpy.h"

static const lacpy_field fields[] = {
    LACPY_FIELD(lac_pattern, family, LACPY_ENUM, "'element', 'vector', 'block', 'vnm' or 'shuffled'", lacpy_families),
    LACPY_FIELD(lac_pattern, unit_n, LACPY_INT32, "outputs of a unit; V of V:N:M", NULL),
    LACPY_FIELD(lac_pattern, unit_k, LACPY_INT32, "inputs of a unit", NULL),
    LACPY_FIELD(lac_pattern, n, LACPY_INT32, "N of N:M; 0 when each row group chooses freely", NULL),
    LACPY_FIELD(lac_pattern, m, LACPY_INT32, "M of N:M; 0 when each row group chooses freely", NULL),
    {NULL, 0, 0, NULL, NULL}};

static const lacpy_field violation_fields[] = {LACPY_FIELD(lac_pattern_violation, row, LACPY_INT64, "", NULL),
                                               LACPY_FIELD(lac_pattern_violation, col, LACPY_INT64, "", NULL),
                                               LACPY_FIELD(lac_pattern_violation, kept, LACPY_INT64, "", NULL),
                                               LACPY_FIELD(lac_pattern_violation, allowed, LACPY_INT64, "", NULL),
                                               {NULL, 0, 0, NULL, NULL}};

PyObject *lacpy_pattern_wrap(const lac_pattern *pattern)
{
    lacpy_pattern *self = PyObject_New(lacpy_pattern, lacpy.pattern);
    if (self) self->pattern = *pattern;
    return (PyObject *)self;
}

int lacpy_pattern_of(PyObject *object, const char *name, lac_pattern *out)
{
    if (PyObject_TypeCheck(object, lacpy.pattern)) {
        *out = ((lacpy_pattern *)object)->pattern;
        return 0;
    }
    if (!PyUnicode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s is %R; it must be a Pattern or its text, such as '2:4'", name, object);
        return -1;
    }
    const char *text = lacpy_text(name, object);
    if (!text) return -1;
    lac_status status = lac_pattern_parse(text, out);
    return status == LAC_STATUS_OK ? 0 : (lacpy_raise(status), -1);
}

int lacpy_patterns_of(PyObject *object, const char *name, lac_pattern **out, size_t *count)
{
    *out = NULL;
    *count = 0;
    if (!object || object == Py_None) return 0;
    if (PyUnicode_Check(object)) { /* a sequence too, but of letters */
        PyErr_Format(PyExc_TypeError, "%s is %R; it must be a sequence of patterns", name, object);
        return -1;
    }
    PyObject *items = PySequence_Tuple(object);
    if (!items) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_Format(PyExc_TypeError, "%s is %R; it must be a sequence of patterns", name, object);
        return -1;
    }
    Py_ssize_t length = PyTuple_Size(items);
    lac_pattern *list = length ? PyMem_Calloc((size_t)length, sizeof *list) : NULL;
    int result = length && !list ? (PyErr_NoMemory(), -1) : 0;
    for (Py_ssize_t i = 0; !result && i < length; i++) result = lacpy_pattern_of(PyTuple_GetItem(items, i), name, &list[i]);
    Py_DECREF(items);
    if (result < 0) {
        PyMem_Free(list);
        return -1;
    }
    *out = list;
    *count = (size_t)length;
    return 0;
}

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"text", NULL};
    PyObject *text;
    (void)type;
    lac_pattern pattern = {0};
    if (lacpy_arguments("Pattern", args, kwargs, names, 1, &text, NULL) < 0 || lacpy_pattern_of(text, "text", &pattern) < 0)
        return NULL;
    return lacpy_pattern_wrap(&pattern);
}

static PyObject *text_of(PyObject *self)
{
    char text[LAC_PATTERN_TEXT_SIZE];
    lac_status status = lac_pattern_format(&((lacpy_pattern *)self)->pattern, text, sizeof text);
    return status == LAC_STATUS_OK ? PyUnicode_FromString(text) : lacpy_raise(status);
}

static PyObject *represent(PyObject *self)
{
    PyObject *text = text_of(self);
    PyObject *whole = text ? PyUnicode_FromFormat("Pattern(%R)", text) : NULL;
    Py_XDECREF(text);
    return whole;
}

static PyObject *compare(PyObject *self, PyObject *other, int operation)
{
    if ((operation != Py_EQ && operation != Py_NE) || !PyObject_TypeCheck(other, lacpy.pattern)) Py_RETURN_NOTIMPLEMENTED;
    const lac_pattern *a = &((lacpy_pattern *)self)->pattern, *b = &((lacpy_pattern *)other)->pattern;
    bool same = a->family == b->family && a->unit_n == b->unit_n && a->unit_k == b->unit_k && a->n == b->n && a->m == b->m &&
                a->density == b->density;
    return PyBool_FromLong(same == (operation == Py_EQ));
}

static Py_hash_t hash(PyObject *self)
{
    PyObject *text = text_of(self);
    Py_hash_t value = text ? PyObject_Hash(text) : -1;
    Py_XDECREF(text);
    return value;
}

static PyObject *get_field(PyObject *self, void *field) { return lacpy_field_get(field, &((lacpy_pattern *)self)->pattern); }

static PyObject *get_density(PyObject *self, void *closure)
{
    (void)closure;
    return PyFloat_FromDouble(lac_pattern_density(&((lacpy_pattern *)self)->pattern));
}

/* Where it is violated goes into the exception as attributes. */
static void add_violation(const lac_pattern_violation *violation)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    for (const lacpy_field *field = violation_fields; field->name; field++) {
        PyObject *number = lacpy_field_get(field, violation);
        if (!number || PyObject_SetAttrString(value, field->name, number) < 0) PyErr_Clear();
        Py_XDECREF(number);
    }
    PyErr_Restore(type, value, traceback);
}

static PyObject *check(PyObject *self, PyObject *dense)
{
    lacpy_array array;
    lac_matrix matrix;
    lac_pattern_violation violation = {.size = sizeof violation};
    if (lacpy_matrix_get(dense, "w", LACPY_READ, -1, -1, &array, &matrix) < 0) return NULL;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_pattern_check(&matrix, &((lacpy_pattern *)self)->pattern, &violation);
    Py_END_ALLOW_THREADS;
    int checked = lacpy_check(status);
    if (status == LAC_STATUS_PATTERN_VIOLATED) add_violation(&violation);
    lacpy_array_release(&array);
    return checked < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
    PyObject *text = text_of(self);
    return text ? Py_BuildValue("O(N)", lacpy.pattern, text) : NULL;
}

static PyMethodDef methods[] = {{"check", check, METH_O,
                                 "check(w, /)\n--\n\nRaises PatternViolated, which says where (row, col, kept, allowed), "
                                 "unless the nonzeros of the matrix w obey the pattern."},
                                LACPY_COPIES,
                                {"__reduce__", reduce, METH_NOARGS, "for pickle: by its text"},
                                {NULL, NULL, 0, NULL}};

static const PyGetSetDef more_attributes[] = {{"density", get_density, NULL, "the share of a large matrix that stays", NULL},
                                              {NULL, NULL, NULL, NULL, NULL}};

int lacpy_pattern_init(PyObject *module)
{
    PyGetSetDef *attributes = lacpy_attributes(fields, get_field, more_attributes);
    if (!attributes) return -1;
    PyType_Slot slots[] = {
        {Py_tp_doc, "Pattern(text)\n--\n\nWhich units of a weight stay: '2:4', '25%', 'vw32:8:32', 'bw4x4:2:8', '64:2:8', "
                    "'shfl64:25%'. Wherever a pattern is wanted, its text will do."},
        {Py_tp_new, make},
        {Py_tp_str, text_of},
        {Py_tp_repr, represent},
        {Py_tp_richcompare, compare},
        {Py_tp_hash, hash},
        {Py_tp_methods, methods},
        {Py_tp_getset, attributes},
        {0, NULL}};
    PyType_Spec spec = {.name = "lacuna.Pattern",
                        .basicsize = sizeof(lacpy_pattern),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                        .slots = slots};
    return (lacpy.pattern = lacpy_type_add(module, &spec)) ? 0 : -1;
}

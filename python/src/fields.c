/* fields.c - members of lacuna.h's structs as Python objects and back, by tables: one table of a struct serves as the attributes of an object, as the
 * fields of a record, and as the keyword arguments of a function. */
#include <string.h>

#include "lacpy.h"

static PyObject *flags_get(const lacpy_name *names, uint32_t flags)
{
    PyObject *list = PyList_New(0);
    for (; list && names->text; names++) {
        if (!(flags & (uint32_t)names->value)) continue;
        PyObject *text = PyUnicode_FromString(names->text);
        if (!text || PyList_Append(list, text) < 0) Py_CLEAR(list);
        Py_XDECREF(text);
    }
    PyObject *tuple = list ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    return tuple;
}

PyObject *lacpy_field_get(const lacpy_field *field, const void *object)
{
    const void *at = (const char *)object + field->offset;
    switch (field->kind) {
    case LACPY_BOOL:
        return PyBool_FromLong(*(const int32_t *)at);
    case LACPY_INT32:
        return PyLong_FromLong(*(const int32_t *)at);
    case LACPY_INT64:
        return PyLong_FromLongLong(*(const int64_t *)at);
    case LACPY_UINT64:
        return PyLong_FromUnsignedLongLong(*(const uint64_t *)at);
    case LACPY_SIZE:
        return PyLong_FromSize_t(*(const size_t *)at);
    case LACPY_DOUBLE:
        return PyFloat_FromDouble(*(const double *)at);
    case LACPY_TEXT: {
        const char *text = *(const char *const *)at;
        if (!text) Py_RETURN_NONE;
        return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "surrogateescape");
    }
    case LACPY_CHARS:
        return PyUnicode_DecodeUTF8(at, (Py_ssize_t)strlen(at), "surrogateescape");
    case LACPY_ENUM:
        return lacpy_name_text(field->names, *(const int *)at);
    case LACPY_DTYPE:
        return PyUnicode_FromString(lac_dtype_name(*(const lac_dtype *)at));
    case LACPY_FLAGS:
        return flags_get(field->names, *(const uint32_t *)at);
    case LACPY_PATTERN:
        if (!((const lac_pattern *)at)->family) Py_RETURN_NONE;
        return lacpy_pattern_wrap(at);
    }
    PyErr_Format(PyExc_SystemError, "field %s has no kind", field->name);
    return NULL;
}

/* An int within [least, most]. */
static int integer_of(const char *name, PyObject *value, long long least, long long most, long long *out)
{
    PyObject *index = PyBool_Check(value) ? NULL : PyNumber_Index(value);
    if (!index) {
        PyErr_Format(PyExc_TypeError, "%s is %R; it must be an int", name, value);
        return -1;
    }
    int overflow = 0;
    *out = PyLong_AsLongLongAndOverflow(index, &overflow);
    Py_DECREF(index);
    if (*out == -1 && PyErr_Occurred()) return -1;
    if (!overflow && *out >= least && *out <= most) return 0;
    PyErr_Format(PyExc_ValueError, "%s is %R; it must be from %lld to %lld", name, value, least, most);
    return -1;
}

/* A text of the table, or a sequence of such. */
static int flags_of(const lacpy_field *field, PyObject *value, uint32_t *out)
{
    *out = 0;
    int one = 0;
    if (PyUnicode_Check(value)) {
        if (lacpy_name_parse(field->names, field->name, value, &one) < 0) return -1;
        *out = (uint32_t)one;
        return 0;
    }
    PyObject *items = PySequence_Tuple(value);
    if (!items) return -1;
    for (Py_ssize_t i = 0; i < PyTuple_Size(items); i++) {
        if (lacpy_name_parse(field->names, field->name, PyTuple_GetItem(items, i), &one) < 0) {
            Py_DECREF(items);
            return -1;
        }
        *out |= (uint32_t)one;
    }
    Py_DECREF(items);
    return 0;
}

static int text_of(const lacpy_field *field, PyObject *value, const char **out)
{
    if (!PyUnicode_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%s is %R; it must be a str", field->name, value);
        return -1;
    }
    Py_ssize_t length = 0;
    *out = PyUnicode_AsUTF8AndSize(value, &length);
    if (!*out) return -1;
    if ((Py_ssize_t)strlen(*out) == length) return 0;
    PyErr_Format(PyExc_ValueError, "%s is %R, which has a null character in it", field->name, value);
    return -1;
}

int lacpy_field_set(const lacpy_field *field, void *object, PyObject *value)
{
    void *at = (char *)object + field->offset;
    long long number = 0;
    if (value == Py_None && field->kind != LACPY_BOOL) return 0; /* the default, which is zero */
    switch (field->kind) {
    case LACPY_BOOL: {
        int truth = PyObject_IsTrue(value);
        if (truth < 0) return -1;
        *(int32_t *)at = truth;
        return 0;
    }
    case LACPY_INT32:
        if (integer_of(field->name, value, INT32_MIN, INT32_MAX, &number) < 0) return -1;
        *(int32_t *)at = (int32_t)number;
        return 0;
    case LACPY_INT64:
        if (integer_of(field->name, value, INT64_MIN, INT64_MAX, &number) < 0) return -1;
        *(int64_t *)at = number;
        return 0;
    case LACPY_DOUBLE: {
        double amount = PyFloat_AsDouble(value);
        if (amount == -1.0 && PyErr_Occurred()) {
            PyErr_Format(PyExc_TypeError, "%s is %R; it must be a number", field->name, value);
            return -1;
        }
        *(double *)at = amount;
        return 0;
    }
    case LACPY_TEXT:
        return text_of(field, value, at);
    case LACPY_ENUM:
        return lacpy_name_parse(field->names, field->name, value, at);
    case LACPY_DTYPE:
        return lacpy_dtype_parse(field->name, value, at);
    case LACPY_FLAGS:
        return flags_of(field, value, at);
    case LACPY_PATTERN:
        return lacpy_pattern_of(value, field->name, at);
    case LACPY_UINT64:
    case LACPY_SIZE:
    case LACPY_CHARS:
        break;
    }
    PyErr_Format(PyExc_SystemError, "field %s cannot be set", field->name);
    return -1;
}

int lacpy_fields_parse(const lacpy_field *fields, void *object, const char *function, PyObject *kwargs, PyObject **rest)
{
    PyObject *others = rest ? PyDict_New() : NULL, *key, *value;
    if (rest && !others) return -1;
    Py_ssize_t position = 0;
    while (kwargs && PyDict_Next(kwargs, &position, &key, &value)) {
        const lacpy_field *field = fields;
        while (field->name && PyUnicode_CompareWithASCIIString(key, field->name) != 0) field++;
        int result = 0;
        if (field->name)
            result = lacpy_field_set(field, object, value);
        else if (others)
            result = PyDict_SetItem(others, key, value);
        else
            result = (PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument %R", function, key), -1);
        if (result < 0) {
            Py_XDECREF(others);
            return -1;
        }
    }
    if (rest) *rest = others;
    return 0;
}

PyObject *lacpy_take(PyObject *dict, const char *key)
{
    PyObject *value = PyDict_GetItemString(dict, key);
    if (!value) return NULL;
    Py_INCREF(value);
    if (PyDict_DelItemString(dict, key) < 0 || value == Py_None) Py_CLEAR(value);
    return value;
}

int lacpy_none_left(const char *function, PyObject *rest)
{
    static const lacpy_field none[] = {{NULL, 0, 0, NULL, NULL}};
    return lacpy_fields_parse(none, NULL, function, rest, NULL);
}

PyTypeObject *lacpy_record_type(const char *name, const char *doc, const lacpy_field *fields)
{
    int count = 0;
    while (fields[count].name) count++;
    PyStructSequence_Field *list = PyMem_Malloc((size_t)(count + 1) * sizeof *list);
    if (!list) return (PyTypeObject *)PyErr_NoMemory();
    for (int i = 0; i < count; i++) list[i] = (PyStructSequence_Field){fields[i].name, fields[i].doc};
    list[count] = (PyStructSequence_Field){NULL, NULL};
    PyStructSequence_Desc description = {.name = name, .doc = doc, .fields = list, .n_in_sequence = count};
    PyTypeObject *type = PyStructSequence_NewType(&description);
    PyMem_Free(list);
    return type;
}

PyObject *lacpy_record(PyTypeObject *type, const lacpy_field *fields, const void *object)
{
    PyObject *record = PyStructSequence_New(type);
    for (Py_ssize_t i = 0; record && fields[i].name; i++) {
        PyObject *value = lacpy_field_get(&fields[i], object);
        if (value)
            PyStructSequence_SetItem(record, i, value);
        else
            Py_CLEAR(record);
    }
    return record;
}

PyGetSetDef *lacpy_attributes(const lacpy_field *fields, getter get, const PyGetSetDef *more)
{
    size_t count = 0, others = 0;
    while (fields[count].name) count++;
    while (more && more[others].name) others++;
    PyGetSetDef *list = PyMem_Calloc(count + others + 1, sizeof *list);
    if (!list) return (PyGetSetDef *)PyErr_NoMemory();
    for (size_t i = 0; i < count; i++)
        list[i] = (PyGetSetDef){fields[i].name, get, NULL, fields[i].doc, (void *)(uintptr_t)&fields[i]};
    if (others) memcpy(list + count, more, others * sizeof *list);
    return list;
}

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
    case LACPY_SHAPE: {
        const lac_tensor_info *info = object;
        PyObject *shape = PyTuple_New(info->rank);
        for (int i = 0; shape && i < info->rank; i++) {
            PyObject *size = PyLong_FromLongLong(info->shape[i]);
            if (!size || PyTuple_SetItem(shape, i, size) < 0) Py_CLEAR(shape);
        }
        return shape;
    }
    case LACPY_PATTERN:
        if (!((const lac_pattern *)at)->family) Py_RETURN_NONE;
        return lacpy_pattern_wrap(at);
    }
    PyErr_Format(PyExc_SystemError, "field %s has no kind", field->name);
    return NULL;
}

int lacpy_integer(const char *name, PyObject *value, int64_t least, int64_t most, int64_t *out)
{
    PyObject *index = PyBool_Check(value) ? NULL : PyNumber_Index(value);
    if (!index) {
        if (!PyErr_Occurred() || lacpy_is_refusal()) PyErr_Format(PyExc_TypeError, "%s is %R; it must be an int", name, value);
        return -1;
    }
    int overflow = 0;
    *out = PyLong_AsLongLongAndOverflow(index, &overflow);
    Py_DECREF(index);
    if (*out == -1 && PyErr_Occurred()) return -1;
    if (!overflow && *out >= least && *out <= most) return 0;
    PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT], "%s is %R; it must be from %lld to %lld", name, value,
                 (long long)least, (long long)most);
    return -1;
}

int lacpy_shape_parse(PyObject *shape, int most, int64_t *sizes, int *dimensions)
{
    PyObject *all = PyIndex_Check(shape) ? PyTuple_Pack(1, shape) : PySequence_Tuple(shape);
    if (!all) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_Format(PyExc_TypeError, "shape is %R; it must be an int or a sequence of int", shape);
        return -1;
    }
    Py_ssize_t count = PyTuple_Size(all);
    int result = count <= most ? 0 : -1;
    if (result < 0)
        PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT], "shape has %zd dimensions; it may have %d", count, most);
    for (Py_ssize_t i = 0; !result && i < count; i++)
        result = lacpy_integer("a size of shape", PyTuple_GetItem(all, i), 0, INT64_MAX, &sizes[i]);
    Py_DECREF(all);
    if (!result) *dimensions = (int)count;
    return result;
}

/* True or False, also numpy's. Other things have a truth as well, but one who writes bias=b has something else in mind. */
static int truth_of(const char *name, PyObject *value)
{
    if (PyBool_Check(value)) return value == Py_True;
    PyObject *type = PyType_GetName(Py_TYPE(value));
    bool is_numpys =
        type && (PyUnicode_CompareWithASCIIString(type, "bool") == 0 || PyUnicode_CompareWithASCIIString(type, "bool_") == 0);
    Py_XDECREF(type);
    if (is_numpys) return PyObject_IsTrue(value);
    if (!PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "%s is %R; it must be True or False", name, value);
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
    if (!items) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_Format(PyExc_TypeError, "%s is %R; it must be a str or a sequence of str", field->name, value);
        return -1;
    }
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

const char *lacpy_text(const char *name, PyObject *value)
{
    if (!PyUnicode_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%s is %R; it must be a str", name, value);
        return NULL;
    }
    Py_ssize_t length = 0;
    const char *text = PyUnicode_AsUTF8AndSize(value, &length);
    if (!text || (Py_ssize_t)strlen(text) == length) return text;
    PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT], "%s is %R, which has a null character in it", name, value);
    return NULL;
}

int lacpy_texts(const char *name, PyObject *object, const char ***out, size_t *count, PyObject **held)
{
    *out = NULL;
    *count = 0;
    *held = NULL;
    if (!object || object == Py_None) return 0;
    PyObject *items = PyUnicode_Check(object) ? PyTuple_Pack(1, object) : PySequence_Tuple(object);
    if (!items) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_Format(PyExc_TypeError, "%s is %R; it must be a str or a sequence of str", name, object);
        return -1;
    }
    Py_ssize_t length = PyTuple_Size(items);
    const char **list = length ? PyMem_Calloc((size_t)length, sizeof *list) : NULL;
    int result = length && !list ? (PyErr_NoMemory(), -1) : 0;
    for (Py_ssize_t i = 0; !result && i < length; i++)
        if (!(list[i] = lacpy_text(name, PyTuple_GetItem(items, i)))) result = -1;
    if (result < 0 || !length) {
        PyMem_Free(list);
        Py_DECREF(items);
        return result;
    }
    *out = list;
    *count = (size_t)length;
    *held = items;
    return 0;
}

int lacpy_field_set(const lacpy_field *field, void *object, PyObject *value)
{
    void *at = (char *)object + field->offset;
    int64_t number = 0;
    if (value == Py_None) return 0; /* the default, which is zero */
    switch (field->kind) {
    case LACPY_BOOL: {
        int truth = truth_of(field->name, value);
        if (truth < 0) return -1;
        *(int32_t *)at = truth;
        return 0;
    }
    case LACPY_INT32:
        if (lacpy_integer(field->name, value, INT32_MIN, INT32_MAX, &number) < 0) return -1;
        *(int32_t *)at = (int32_t)number;
        return 0;
    case LACPY_INT64:
        if (lacpy_integer(field->name, value, INT64_MIN, INT64_MAX, &number) < 0) return -1;
        *(int64_t *)at = number;
        return 0;
    case LACPY_DOUBLE: {
        double amount = PyFloat_AsDouble(value);
        if (amount == -1.0 && PyErr_Occurred()) {
            if (lacpy_is_refusal()) PyErr_Format(PyExc_TypeError, "%s is %R; it must be a number", field->name, value);
            return -1;
        }
        *(double *)at = amount;
        return 0;
    }
    case LACPY_TEXT: {
        const char *text = lacpy_text(field->name, value);
        if (!text) return -1;
        *(const char **)at = text;
        return 0;
    }
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
    case LACPY_SHAPE:
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
        const bool is_text = PyUnicode_Check(key); /* f(**{b"x": 1}) comes here as it is, and so does a dict of options */
        while (field->name && !(is_text && PyUnicode_CompareWithASCIIString(key, field->name) == 0)) field++;
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

int lacpy_arguments(const char *function, PyObject *args, PyObject *kwargs, const char *const *names, int needed,
                    PyObject **values, PyObject **rest)
{
    Py_ssize_t given = PyTuple_Size(args), most = 0;
    while (names[most]) most++;
    if (given > most) {
        PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments without a name, not %zd", function, most, given);
        return -1;
    }
    PyObject *others = kwargs ? PyDict_Copy(kwargs) : PyDict_New();
    if (!others) return -1;
    for (Py_ssize_t i = 0; i < most; i++) {
        PyObject *named =
            kwargs ? PyDict_GetItemString(kwargs, names[i]) : NULL; /* kwargs outlives the call, and so do its values */
        values[i] = i < given ? PyTuple_GetItem(args, i) : named;
        if (named && i < given)
            PyErr_Format(PyExc_TypeError, "%s() got two values for '%s'", function, names[i]);
        else if (!values[i] && i < needed)
            PyErr_Format(PyExc_TypeError, "%s() needs '%s'", function, names[i]);
        else if (!named || PyDict_DelItemString(others, names[i]) == 0)
            continue;
        Py_DECREF(others);
        return -1;
    }
    if (rest) {
        *rest = others;
        return 0;
    }
    int result = lacpy_none_left(function, others);
    Py_DECREF(others);
    return result;
}

PyTypeObject *lacpy_record_type(PyObject *module, const char *name, const char *doc, const lacpy_field *fields)
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
    if (type && PyModule_AddObjectRef(module, strrchr(name, '.') + 1, (PyObject *)type) < 0) Py_CLEAR(type);
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

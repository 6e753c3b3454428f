/* file.c - File: tensors, compressed weights, masks and metadata of a file or a set of files, without copying what need not be. Arrays and views of it keep
 * its memory mapped, also after it is closed; nothing new can be had of it then. */
#include <string.h>

#include "lacpy.h"

typedef struct file {
    PyObject_HEAD;
    lac_file *file; /* NULL once it is closed and nobody uses it */
    lac_file_info info;
    PyObject *path;   /* as a str, for messages */
    Py_ssize_t users; /* views that are alive, and calls that run */
    bool closed;
} file;

static const lacpy_field info_fields[] = {
    LACPY_FIELD(lac_file_info, format, LACPY_ENUM, "'safetensors', 'npy' or 'smtx'", lacpy_file_formats),
    LACPY_FIELD_AS(lac_file_info, "tensor_count", tensors, LACPY_INT64, "dense ones; the parts of weights are not counted",
                   NULL),
    LACPY_FIELD_AS(lac_file_info, "weight_count", weights, LACPY_INT64, "compressed ones", NULL),
    LACPY_FIELD_AS(lac_file_info, "mask_count", masks, LACPY_INT64, "of an .smtx file: 1", NULL),
    LACPY_FIELD_AS(lac_file_info, "file_count", files, LACPY_INT64, "how many files it spans", NULL),
    LACPY_FIELD_AS(lac_file_info, "nbytes", bytes, LACPY_UINT64, "of all of them", NULL),
    {NULL, 0, 0, NULL, NULL}};

static const lacpy_field tensor_fields[] = {
    LACPY_FIELD(lac_tensor_info, name, LACPY_TEXT, "in the file", NULL),
    LACPY_FIELD(lac_tensor_info, type, LACPY_TEXT, "as the file calls it: 'F32', 'BF16', 'I64', ...", NULL),
    LACPY_FIELD(lac_tensor_info, dtype, LACPY_DTYPE, "'none' when the type is none of Lacuna's", NULL),
    LACPY_FIELD(lac_tensor_info, rank, LACPY_INT32, "how many dimensions", NULL),
    LACPY_FIELD(lac_tensor_info, shape, LACPY_SHAPE, "its sizes", NULL),
    LACPY_FIELD_AS(lac_tensor_info, "nbytes", bytes, LACPY_UINT64, "of its elements", NULL),
    LACPY_FIELD(lac_tensor_info, path, LACPY_TEXT, "which file it lies in", NULL),
    {NULL, 0, 0, NULL, NULL}};

static PyTypeObject *tensor_record;

/* ---- its life */

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"path", NULL};
    PyObject *value;
    if (lacpy_arguments("File", args, kwargs, names, 1, &value, NULL) < 0) return NULL;
    PyObject *path = lacpy_path("path", value);
    PyObject *text = path ? PyUnicode_DecodeFSDefault(PyBytes_AsString(path)) : NULL;
    file *self = text ? PyObject_New(file, type) : NULL;
    if (!self) {
        Py_XDECREF(path);
        Py_XDECREF(text);
        return NULL;
    }
    self->file = NULL;
    self->info = (lac_file_info){.size = sizeof self->info};
    self->path = text;
    self->users = 0;
    self->closed = false;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_file_open(PyBytes_AsString(path), &self->file);
    if (status == LAC_STATUS_OK) status = lac_file_get_info(self->file, &self->info);
    Py_END_ALLOW_THREADS;
    int checked = lacpy_check(status);
    Py_DECREF(path);
    if (checked < 0) Py_CLEAR(self);
    return (PyObject *)self;
}

static void destroy(PyObject *object)
{
    file *self = (file *)object;
    PyTypeObject *type = Py_TYPE(object);
    lac_file_close(self->file);
    Py_XDECREF(self->path);
    PyObject_Free(self);
    Py_DECREF(type);
}

static int use(file *self)
{
    if (!self->closed) return (++self->users, 0);
    PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT], "the file %R is closed", self->path);
    return -1;
}

static void leave(PyObject *object)
{
    file *self = (file *)object;
    if (--self->users || !self->closed) return;
    lac_file_close(self->file);
    self->file = NULL;
}

static PyObject *close_it(PyObject *object, PyObject *unused)
{
    (void)unused;
    file *self = (file *)object;
    if (!self->closed) {
        self->closed = true;
        ++self->users;
        leave(object);
    }
    Py_RETURN_NONE;
}

static PyObject *enter(PyObject *object, PyObject *unused)
{
    (void)unused;
    if (use((file *)object) < 0) return NULL;
    leave(object);
    return Py_NewRef(object);
}

static PyObject *leave_block(PyObject *object, PyObject *args)
{
    (void)args;
    return close_it(object, NULL);
}

/* ---- what it holds */

static PyObject *get_tensors(PyObject *object, void *unused)
{
    (void)unused;
    file *self = (file *)object;
    if (use(self) < 0) return NULL;
    PyObject *all = PyDict_New();
    for (int64_t i = 0; all && i < self->info.tensors; i++) {
        lac_tensor_info info = {.size = sizeof info};
        lac_status status = lac_file_get_tensor(self->file, i, &info);
        PyObject *record = status == LAC_STATUS_OK ? lacpy_record(tensor_record, tensor_fields, &info) : lacpy_raise(status);
        if (!record || PyDict_SetItem(all, PyStructSequence_GetItem(record, 0), record) < 0) Py_CLEAR(all);
        Py_XDECREF(record);
    }
    leave(object);
    return all;
}

static PyObject *text_of(const char *text) { return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "surrogateescape"); }

static PyObject *get_weights(PyObject *object, void *unused)
{
    (void)unused;
    file *self = (file *)object;
    if (use(self) < 0) return NULL;
    PyObject *all = PyDict_New();
    for (int64_t i = 0; all && i < self->info.weights; i++) {
        lac_weight_info info = {.size = sizeof info};
        const char *name = NULL;
        lac_status status = lac_file_get_weight(self->file, i, &name, &info);
        PyObject *key = status == LAC_STATUS_OK ? text_of(name) : lacpy_raise(status);
        PyObject *record = key ? lacpy_record(lacpy.weight_info, lacpy_weight_fields, &info) : NULL;
        if (!record || PyDict_SetItem(all, key, record) < 0) Py_CLEAR(all);
        Py_XDECREF(record);
        Py_XDECREF(key);
    }
    leave(object);
    return all;
}

static PyObject *get_metadata(PyObject *object, void *unused)
{
    (void)unused;
    file *self = (file *)object;
    if (use(self) < 0) return NULL;
    PyObject *all = PyDict_New();
    for (int64_t i = 0; all; i++) {
        const char *key = NULL, *value = NULL;
        if (lac_file_get_metadata(self->file, i, &key, &value) != LAC_STATUS_OK) break; /* past the end */
        PyObject *name = text_of(key), *text = name ? text_of(value) : NULL;
        if (!text || PyDict_SetItem(all, name, text) < 0) Py_CLEAR(all);
        Py_XDECREF(name);
        Py_XDECREF(text);
    }
    leave(object);
    return all;
}

/* ---- reading */

/* A tensor, with the file in use; -1 with an exception, and then it is not. */
static int find(file *self, PyObject *name, lac_tensor_info *info)
{
    const char *text = lacpy_text("name", name);
    if (!text || use(self) < 0) return -1;
    *info = (lac_tensor_info){.size = sizeof *info};
    lac_status status = lac_file_find_tensor(self->file, text, info);
    if (status == LAC_STATUS_OK) return 0;
    lacpy_raise(status);
    leave((PyObject *)self);
    return -1;
}

static PyObject *view(PyObject *object, PyObject *name)
{
    lac_tensor_info info;
    if (find((file *)object, name, &info) < 0) return NULL;
    return lacpy_span_view(object, leave, info.data, info.bytes);
}

static PyObject *tensor(PyObject *object, PyObject *name)
{
    lac_tensor_info info;
    if (find((file *)object, name, &info) < 0) return NULL;
    PyObject *bytes = lacpy_span_view(object, leave, info.data, info.bytes);
    PyObject *shape = bytes ? lacpy_field_get(&(lacpy_field){"shape", LACPY_SHAPE, 0, NULL, NULL}, &info) : NULL;
    PyObject *array = shape ? PyObject_CallFunction(lacpy.from_bytes, "OsO", bytes, info.type, shape) : NULL;
    Py_XDECREF(bytes);
    Py_XDECREF(shape);
    return array;
}

/* `target`, a vector or a matrix, is filled from the file, which is in use. */
static int fill(const file *self, const char *name, PyObject *target)
{
    lacpy_array array;
    lac_matrix matrix;
    if (lacpy_array_get(target, "out", LACPY_WRITE, NULL, &array) < 0) return -1;
    if (array.dimensions == 1) { /* one row */
        array.dimensions = 2;
        array.shape[1] = array.shape[0], array.stride[1] = array.stride[0];
        array.shape[0] = 1, array.stride[0] = array.shape[1];
    }
    int result = lacpy_array_matrix(&array, "out", -1, -1, &matrix);
    if (!result) {
        lac_status status;
        Py_BEGIN_ALLOW_THREADS;
        status = lac_file_read_matrix(self->file, name, &matrix);
        Py_END_ALLOW_THREADS;
        result = lacpy_check(status);
    }
    lacpy_array_release(&array);
    return result;
}

static PyObject *read_tensor(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"name", "dtype", "out", NULL};
    file *self = (file *)object;
    PyObject *values[3], *target = NULL;
    lac_tensor_info info;
    if (lacpy_arguments("read", args, kwargs, names, 1, values, NULL) < 0) return NULL;
    PyObject *dtype = values[1] == Py_None ? NULL : values[1], *out = values[2] == Py_None ? NULL : values[2];
    lac_dtype wanted = LAC_DTYPE_NONE;
    if (dtype && lacpy_dtype_parse("dtype", dtype, &wanted) < 0) return NULL;
    if (dtype && out) {
        PyErr_Format(PyExc_TypeError, "dtype is %R, but out is given, whose dtype it is", dtype);
        return NULL;
    }
    if (find(self, values[0], &info) < 0) return NULL;
    if (!wanted) wanted = lac_dtype_size(info.dtype) > 1 ? info.dtype : LAC_DTYPE_F32;
    if (out)
        target = Py_NewRef(out);
    else if (info.rank == 1 || info.rank == 2)
        target = lacpy_array_new(NULL, info.rank, info.shape, wanted, LAC_LAYOUT_ROW_MAJOR, NULL);
    else
        PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT],
                     "tensor %R has %d dimensions; read() takes matrices and vectors, tensor() all", values[0], (int)info.rank);
    if (target && fill(self, lacpy_text("name", values[0]), target) < 0) Py_CLEAR(target);
    leave(object);
    return target;
}

static PyObject *load(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"name", NULL};
    file *self = (file *)object;
    PyObject *value;
    const char *name = NULL;
    if (lacpy_arguments("load", args, kwargs, names, 0, &value, NULL) < 0 ||
        (value && value != Py_None && !(name = lacpy_text("name", value))) || use(self) < 0)
        return NULL;
    lac_weight *weight = NULL;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_file_load_weight(self->file, name, &weight);
    Py_END_ALLOW_THREADS;
    int checked = lacpy_check(status);
    leave(object);
    return lacpy_weight_made(checked, weight);
}

static PyObject *mask(PyObject *object, PyObject *unused)
{
    (void)unused;
    file *self = (file *)object;
    if (use(self) < 0) return NULL;
    lac_mask *made = NULL;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_file_load_mask(self->file, &made);
    Py_END_ALLOW_THREADS;
    int checked = lacpy_check(status);
    leave(object);
    return lacpy_mask_made(checked, made);
}

/* ---- the type */

static PyObject *get_field(PyObject *self, void *field) { return lacpy_field_get(field, &((file *)self)->info); }
static PyObject *get_closed(PyObject *self, void *unused) { return (void)unused, PyBool_FromLong(((file *)self)->closed); }
static PyObject *represent(PyObject *self)
{
    return PyUnicode_FromFormat("<lacuna.File %R%s>", ((file *)self)->path, ((file *)self)->closed ? ", closed" : "");
}

static PyMethodDef methods[] = {
    {"close", close_it, METH_NOARGS,
     "close()\n--\n\nNothing new can be had of it; arrays and views that are alive stay as they are."},
    {"view", view, METH_O, "view(name, /)\n--\n\nA tensor's bytes as a read-only memoryview, without a copy."},
    {"tensor", tensor, METH_O,
     "tensor(name, /)\n--\n\nA tensor as a read-only numpy array, without a copy; with one where its bytes lie askew in the "
     "file."},
    {"read",
     LACPY_CALL(
         read_tensor, LACPY_KEYWORDS,
         "read(name, dtype=None, out=None)\n--\n\nA copy of a matrix or a vector, converted: a new numpy array, or out.")},
    {"load", LACPY_CALL(load, LACPY_KEYWORDS,
                        "load(name=None)\n--\n\nA compressed Weight; no name is needed where the file holds just one.")},
    {"mask", mask, METH_NOARGS, "mask()\n--\n\nThe Mask of an .smtx file."},
    {"__enter__", enter, METH_NOARGS, "__enter__()\n--\n\nItself."},
    {"__exit__", leave_block, METH_VARARGS, "__exit__(*exception)\n--\n\nCloses it."},
    {NULL, NULL, 0, NULL}};

static const PyGetSetDef more_attributes[] = {
    {"tensors", get_tensors, NULL, "{name: TensorInfo} of the dense tensors", NULL},
    {"weights", get_weights, NULL, "{name: WeightInfo} of the compressed weights", NULL},
    {"metadata", get_metadata, NULL, "{key: value} of a safetensors file", NULL},
    {"closed", get_closed, NULL, "nothing new can be had of it", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

int lacpy_file_init(PyObject *module)
{
    tensor_record = lacpy_record_type(module, "lacuna.TensorInfo", "A dense tensor of a file.", tensor_fields);
    PyGetSetDef *attributes = lacpy_attributes(info_fields, get_field, more_attributes);
    if (!tensor_record || !attributes) return -1;
    PyType_Slot slots[] = {{Py_tp_doc,
                            "File(path)\n--\n\nA safetensors file, a folder or an index of several, a container of compressed "
                            "weights, an .npy or an .smtx file: opened by content, validated, memory-mapped, read-only."},
                           {Py_tp_new, make},
                           {Py_tp_dealloc, destroy},
                           {Py_tp_repr, represent},
                           {Py_tp_methods, methods},
                           {Py_tp_getset, attributes},
                           {0, NULL}};
    PyType_Spec spec = {.name = "lacuna.File",
                        .basicsize = sizeof(file),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                        .slots = slots};
    return (lacpy.file = lacpy_type_add(module, &spec)) ? 0 : -1;
}

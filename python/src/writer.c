/* writer.c - Writer: a container, written in one pass, and save_npy(). save() of lacuna._files is what most people want of it. */
#include <string.h>

#include "lacpy.h"

typedef struct writer {
    PyObject_HEAD;
    lac_writer *writer; /* NULL once it is committed or discarded */
    PyObject *path;     /* as a str, for messages */
    bool busy;          /* a call of another thread runs */
} writer;

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"path", NULL};
    PyObject *value;
    if (lacpy_arguments("Writer", args, kwargs, names, 1, &value, NULL) < 0) return NULL;
    PyObject *path = lacpy_path("path", value);
    PyObject *text = path ? PyUnicode_DecodeFSDefault(PyBytes_AsString(path)) : NULL;
    writer *self = text ? PyObject_New(writer, type) : NULL;
    if (!self) {
        Py_XDECREF(path);
        Py_XDECREF(text);
        return NULL;
    }
    self->writer = NULL;
    self->path = text;
    self->busy = false;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_writer_open(PyBytes_AsString(path), &self->writer);
    Py_END_ALLOW_THREADS;
    int checked = lacpy_check(status);
    Py_DECREF(path);
    if (checked < 0) Py_CLEAR(self);
    return (PyObject *)self;
}

static void destroy(PyObject *object)
{
    writer *self = (writer *)object;
    PyTypeObject *type = Py_TYPE(object);
    lac_writer_free(self->writer);
    Py_XDECREF(self->path);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* May a call begin? */
static int is_ready(const writer *self)
{
    if (self->writer && !self->busy) return 1;
    PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT],
                 self->writer ? "the writer of %R is used by another thread" : "the writer of %R is closed", self->path);
    return 0;
}

static PyObject *none_or(lac_status status) { return lacpy_check(status) < 0 ? NULL : Py_NewRef(Py_None); }

/* ---- declaring */

static PyObject *set_metadata(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"key", "value", NULL};
    writer *self = (writer *)object;
    PyObject *values[2];
    const char *key, *value;
    if (lacpy_arguments("set_metadata", args, kwargs, names, 2, values, NULL) < 0 || !(key = lacpy_text("key", values[0])) ||
        !(value = lacpy_text("value", values[1])) || !is_ready(self))
        return NULL;
    return none_or(lac_writer_set_metadata(self->writer, key, value));
}

static PyObject *declare_tensor(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"name", "type", "shape", NULL};
    writer *self = (writer *)object;
    PyObject *values[3];
    lac_tensor_info info = {.size = sizeof info};
    int rank = 0;
    if (lacpy_arguments("declare_tensor", args, kwargs, names, 3, values, NULL) < 0 ||
        !(info.name = lacpy_text("name", values[0])) || !(info.type = lacpy_text("type", values[1])) ||
        lacpy_shape_parse(values[2], LAC_MAX_RANK, info.shape, &rank) < 0 || !is_ready(self))
        return NULL;
    info.rank = rank;
    return none_or(lac_writer_declare_tensor(self->writer, &info));
}

/* What a WeightInfo says; the sizes in it follow from the rest. */
static int read_info(PyObject *record, lac_weight_info *info)
{
    *info = (lac_weight_info){.size = sizeof *info};
    for (Py_ssize_t i = 0; lacpy_weight_fields[i].name; i++)
        if (lacpy_weight_fields[i].kind != LACPY_UINT64 &&
            lacpy_field_set(&lacpy_weight_fields[i], info, PyStructSequence_GetItem(record, i)) < 0)
            return -1;
    return 0;
}

static PyObject *declare_weight(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"name", "weight", NULL};
    writer *self = (writer *)object;
    PyObject *values[2];
    const char *name;
    lac_weight_info info = {.size = sizeof info};
    if (lacpy_arguments("declare_weight", args, kwargs, names, 2, values, NULL) < 0 ||
        !(name = lacpy_text("name", values[0])) || !is_ready(self))
        return NULL;
    if (PyObject_TypeCheck(values[1], lacpy.weight)) {
        lac_weight *weight = ((lacpy_weight *)values[1])->weight;
        return none_or(lac_writer_declare_weight(self->writer, name, &((lacpy_weight *)values[1])->info, weight));
    }
    if (!PyObject_TypeCheck(values[1], lacpy.weight_info)) {
        PyErr_Format(PyExc_TypeError, "weight is %R; it must be a Weight or a WeightInfo", values[1]);
        return NULL;
    }
    return read_info(values[1], &info) < 0 ? NULL : none_or(lac_writer_declare_weight(self->writer, name, &info, NULL));
}

/* ---- writing */

/* Are the elements what stands in files? 0 with an exception where they are not. */
static int is_storable(const char *format)
{
    if (!format || !*format || !strchr(">!O", *format)) return 1;
    if (*format == 'O')
        PyErr_SetString(PyExc_TypeError, "data has elements of type 'O', which are addresses of Python's objects");
    else
        PyErr_Format(PyExc_TypeError, "data has elements of type '%s', big-endian; a file's are little-endian", format);
    return 0;
}

/* The array's own bytes, or, of what gives no buffer, those that it is known to have; contiguous. */
static int bytes_of(PyObject *object, lacpy_array *array, Py_buffer *raw, const void **data, uint64_t *bytes)
{
    *array = (lacpy_array){0};
    if (lacpy_refuse_masked(object, "data") < 0) return -1;
    if (PyObject_CheckBuffer(object)) {
        if (PyObject_GetBuffer(object, raw, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) == 0) {
            *data = raw->buf;
            *bytes = (uint64_t)raw->len;
            if (is_storable(raw->format)) return 0;
            PyBuffer_Release(raw);
            return -1;
        }
        if (!PyErr_ExceptionMatches(PyExc_ValueError) && !PyErr_ExceptionMatches(PyExc_BufferError)) return -1;
        PyErr_Clear();
        if (PyObject_GetBuffer(object, raw, PyBUF_STRIDES | PyBUF_FORMAT) == 0) {
            PyBuffer_Release(raw);
            PyErr_SetString(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT],
                            "data has gaps, or is not in C order; pass a contiguous copy");
            return -1;
        }
        PyErr_Clear();
    }
    if (lacpy_array_get(object, "data", LACPY_READ, NULL, array) < 0) return -1;
    int64_t next = 1;
    bool is_packed = !array->on_gpu;
    for (int i = array->dimensions - 1; i >= 0; i--) {
        is_packed = is_packed && (array->shape[i] <= 1 || array->stride[i] == next);
        next *= array->shape[i];
    }
    *data = array->data;
    *bytes = (uint64_t)next * lac_dtype_size(array->dtype);
    if (is_packed || (next == 0 && !array->on_gpu)) return 0;
    lacpy_raise_shape(array, "data", "in the host's memory, in C order and without gaps");
    lacpy_array_release(array);
    return -1;
}

static PyObject *write_tensor(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"name", "data", NULL};
    writer *self = (writer *)object;
    PyObject *values[2];
    const char *name;
    lacpy_array array;
    Py_buffer raw = {0};
    const void *data = NULL;
    uint64_t bytes = 0;
    if (lacpy_arguments("write_tensor", args, kwargs, names, 2, values, NULL) < 0 || !(name = lacpy_text("name", values[0])) ||
        bytes_of(values[1], &array, &raw, &data, &bytes) < 0)
        return NULL;
    PyObject *result = NULL;
    if (is_ready(self)) { /* looking at the array may have run code of its owner's */
        lac_status status;
        self->busy = true;
        Py_BEGIN_ALLOW_THREADS;
        status = lac_writer_write_tensor(self->writer, name, data, bytes);
        Py_END_ALLOW_THREADS;
        self->busy = false;
        result = none_or(status);
    }
    if (raw.obj) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        PyBuffer_Release(&raw);
        PyErr_Restore(type, value, traceback);
    }
    lacpy_array_release(&array);
    return result;
}

static PyObject *write_weight(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"name", "weight", NULL};
    writer *self = (writer *)object;
    PyObject *values[2];
    const char *name;
    if (lacpy_arguments("write_weight", args, kwargs, names, 2, values, NULL) < 0 || !(name = lacpy_text("name", values[0])) ||
        !is_ready(self))
        return NULL;
    if (!PyObject_TypeCheck(values[1], lacpy.weight)) {
        PyErr_Format(PyExc_TypeError, "weight is %R; it must be a Weight", values[1]);
        return NULL;
    }
    lac_status status;
    self->busy = true;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_writer_write_weight(self->writer, name, ((lacpy_weight *)values[1])->weight);
    Py_END_ALLOW_THREADS;
    self->busy = false;
    return none_or(status);
}

/* ---- its end */

static PyObject *discard(PyObject *object, PyObject *unused)
{
    (void)unused;
    writer *self = (writer *)object;
    if (self->writer && !is_ready(self)) return NULL;
    lac_writer_free(self->writer);
    self->writer = NULL;
    Py_RETURN_NONE;
}

static PyObject *commit(PyObject *object, PyObject *unused)
{
    (void)unused;
    writer *self = (writer *)object;
    if (!is_ready(self)) return NULL;
    lac_status status;
    self->busy = true;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_writer_commit(self->writer);
    Py_END_ALLOW_THREADS;
    self->busy = false;
    if (status == LAC_STATUS_OK) {
        lac_writer_free(self->writer);
        self->writer = NULL;
    }
    return none_or(status);
}

static PyObject *enter(PyObject *object, PyObject *unused)
{
    (void)unused;
    return is_ready((writer *)object) ? Py_NewRef(object) : NULL;
}

/* Commits what has been written, unless the block raised, or has ended it itself. What cannot be committed is discarded. */
static PyObject *leave_block(PyObject *object, PyObject *args)
{
    writer *self = (writer *)object;
    if (!self->writer) Py_RETURN_NONE;
    bool raised = PyTuple_Size(args) > 0 && PyTuple_GetItem(args, 0) != Py_None;
    PyObject *result = raised ? discard(object, NULL) : commit(object, NULL);
    if (!result && self->writer && !self->busy) {
        lac_writer_free(self->writer);
        self->writer = NULL;
    }
    return result;
}

static PyObject *get_closed(PyObject *self, void *unused) { return (void)unused, PyBool_FromLong(!((writer *)self)->writer); }
static PyObject *represent(PyObject *self)
{
    return PyUnicode_FromFormat("<lacuna.Writer %R%s>", ((writer *)self)->path, ((writer *)self)->writer ? "" : ", closed");
}

/* ---- one matrix */

static PyObject *save_npy(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"path", "w", NULL};
    (void)module;
    PyObject *values[2];
    lacpy_array array;
    lac_matrix matrix;
    if (lacpy_arguments("save_npy", args, kwargs, names, 2, values, NULL) < 0) return NULL;
    PyObject *path = lacpy_path("path", values[0]);
    if (!path || lacpy_matrix_get(values[1], "w", LACPY_READ, -1, -1, &array, &matrix) < 0) {
        Py_XDECREF(path);
        return NULL;
    }
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_matrix_save_npy(&matrix, PyBytes_AsString(path));
    Py_END_ALLOW_THREADS;
    PyObject *result = none_or(status);
    lacpy_array_release(&array);
    Py_DECREF(path);
    return result;
}

static PyMethodDef methods[] = {
    {"set_metadata",
     LACPY_CALL(set_metadata, LACPY_KEYWORDS, "set_metadata(key, value)\n--\n\nAn entry of the file's metadata.")},
    {"declare_tensor", LACPY_CALL(declare_tensor, LACPY_KEYWORDS,
                                  "declare_tensor(name, type, shape)\n--\n\nA dense tensor, of a type as safetensors calls it: "
                                  "'F32', 'BF16', 'I64', ...")},
    {"declare_weight",
     LACPY_CALL(declare_weight, LACPY_KEYWORDS,
                "declare_weight(name, weight)\n--\n\nA compressed weight: one, or a WeightInfo of what it will be.")},
    {"write_tensor",
     LACPY_CALL(write_tensor, LACPY_KEYWORDS,
                "write_tensor(name, data)\n--\n\nThe tensor's bytes, or an array of them in C order. Their number is "
                "checked, their type is not.")},
    {"write_weight",
     LACPY_CALL(write_weight, LACPY_KEYWORDS, "write_weight(name, weight)\n--\n\nA weight that is what was declared.")},
    {"commit", commit, METH_NOARGS, "commit()\n--\n\nPuts the finished file under its name, in one step."},
    {"discard", discard, METH_NOARGS, "discard()\n--\n\nLeaves no file behind."},
    {"__enter__", enter, METH_NOARGS, "__enter__()\n--\n\nItself."},
    {"__exit__", leave_block, METH_VARARGS, "__exit__(*exception)\n--\n\nCommits, or discards where the block raised."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef attributes[] = {{"closed", get_closed, NULL, "it was committed or discarded", NULL},
                                   {NULL, NULL, NULL, NULL, NULL}};

static PyMethodDef functions[] = {
    {"save_npy",
     LACPY_CALL(save_npy, LACPY_KEYWORDS, "save_npy(path, w)\n--\n\nWrites a matrix as an .npy file, whole or not at all.")},
    {NULL, NULL, 0, NULL}};

int lacpy_writer_init(PyObject *module)
{
    PyType_Slot slots[] = {
        {Py_tp_doc, "Writer(path)\n--\n\nA safetensors file of dense tensors and compressed weights, written in one pass: "
                    "declare everything, then write it in that order. Nothing appears under path before commit()."},
        {Py_tp_new, make},
        {Py_tp_dealloc, destroy},
        {Py_tp_repr, represent},
        {Py_tp_methods, methods},
        {Py_tp_getset, attributes},
        {0, NULL}};
    PyType_Spec spec = {.name = "lacuna.Writer",
                        .basicsize = sizeof(writer),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                        .slots = slots};
    if (!(lacpy.writer = lacpy_type_add(module, &spec))) return -1;
    return PyModule_AddFunctions(module, functions);
}

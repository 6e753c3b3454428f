/* weight.c - Weight: the compressed W, made of a dense matrix and a mask, of a file, or of its parts. */
#include "lacpy.h"

#include <structmember.h>

const lacpy_field lacpy_weight_fields[] = {
    LACPY_FIELD(lac_weight_info, pattern, LACPY_PATTERN, "its Pattern", NULL),
    LACPY_FIELD(lac_weight_info, n, LACPY_INT64, "rows that it holds", NULL),
    LACPY_FIELD(lac_weight_info, k, LACPY_INT64, "columns that it holds", NULL),
    LACPY_FIELD_AS(lac_weight_info, "out_features", n_out, LACPY_INT64, "the width of Y: n, but for shards with a permutation",
                   NULL),
    LACPY_FIELD_AS(lac_weight_info, "in_features", k_in, LACPY_INT64, "the width of X: k, but for shards with a permutation",
                   NULL),
    LACPY_FIELD(lac_weight_info, dtype, LACPY_DTYPE, "of its values: 'f32', 'f16' or 'bf16'", NULL),
    LACPY_FIELD(lac_weight_info, encoding, LACPY_ENUM, "of its index", lacpy_encodings),
    LACPY_FIELD(lac_weight_info, has_row_perm, LACPY_BOOL, "its rows stand in another order than its outputs", NULL),
    LACPY_FIELD(lac_weight_info, has_col_perm, LACPY_BOOL, "its columns stand in another order than its inputs", NULL),
    LACPY_FIELD(lac_weight_info, kept, LACPY_INT64, "values stored", NULL),
    LACPY_FIELD(lac_weight_info, value_bytes, LACPY_UINT64, "of the values", NULL),
    LACPY_FIELD(lac_weight_info, index_bytes, LACPY_UINT64, "of all the rest", NULL),
    LACPY_FIELD(lac_weight_info, dense_bytes, LACPY_UINT64, "that it would have with its zeros", NULL),
    {NULL, 0, 0, NULL, NULL}};

static const lacpy_field option_fields[] = {LACPY_FIELD(lac_compress_options, dtype, LACPY_DTYPE, "", NULL),
                                            LACPY_FIELD(lac_compress_options, encoding, LACPY_ENUM, "", lacpy_encodings),
                                            LACPY_FIELD(lac_compress_options, overflow, LACPY_ENUM, "", lacpy_overflows),
                                            LACPY_FIELD(lac_compress_options, threads, LACPY_INT32, "", NULL),
                                            {NULL, 0, 0, NULL, NULL}};

int lacpy_compress_options_parse(lac_compress_options *options, const char *function, PyObject *kwargs, PyObject **rest)
{
    *options = (lac_compress_options){.size = sizeof *options};
    return lacpy_fields_parse(option_fields, options, function, kwargs, rest);
}

PyObject *lacpy_weight_wrap(lac_weight *weight)
{
    lacpy_weight *self = PyObject_New(lacpy_weight, lacpy.weight);
    if (!self) {
        lac_weight_free(weight);
        return NULL;
    }
    self->weight = weight;
    self->weak = NULL;
    self->info = (lac_weight_info){.size = sizeof self->info};
    lac_status status = lac_weight_get_info(weight, &self->info);
    if (status == LAC_STATUS_OK) return (PyObject *)self;
    Py_DECREF(self);
    return lacpy_raise(status);
}

static void destroy(PyObject *object)
{
    lacpy_weight *self = (lacpy_weight *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->weak) PyObject_ClearWeakRefs(object);
    lac_weight_free(self->weight);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* ---- making one */

/* The mask that compress() goes by: the caller's, or that of pruning by magnitude to his pattern, which is then to be freed. */
static int find_mask(PyObject *object, const lac_matrix *matrix, int threads, const lac_mask **mask, lac_mask **made)
{
    *made = NULL;
    if (PyObject_TypeCheck(object, lacpy.mask)) {
        *mask = ((lacpy_mask *)object)->mask;
        return 0;
    }
    lac_pattern pattern;
    if (lacpy_pattern_of(object, "mask", &pattern) < 0) return -1;
    lac_prune_options options = {.size = sizeof options, .threads = threads};
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_prune(matrix, &pattern, &options, made);
    Py_END_ALLOW_THREADS;
    *mask = *made;
    return lacpy_check(status);
}

static PyObject *compress(PyObject *module, PyObject *args, PyObject *kwargs)
{
    (void)module;
    PyObject *dense, *object;
    lac_compress_options options;
    lacpy_array array;
    lac_matrix matrix;
    if (!PyArg_ParseTuple(args, "OO:compress", &dense, &object) ||
        lacpy_compress_options_parse(&options, "compress", kwargs, NULL) < 0 ||
        lacpy_matrix_get(dense, "w", LACPY_READ, -1, -1, &array, &matrix) < 0)
        return NULL;
    const lac_mask *mask;
    lac_mask *made = NULL;
    lac_weight *weight = NULL;
    int result = find_mask(object, &matrix, options.threads, &mask, &made);
    if (!result) {
        lac_status status;
        Py_BEGIN_ALLOW_THREADS;
        status = lac_weight_compress(&matrix, mask, &options, &weight);
        Py_END_ALLOW_THREADS;
        result = lacpy_check(status);
    }
    lac_mask_free(made);
    lacpy_array_release(&array);
    return result < 0 ? NULL : lacpy_weight_wrap(weight);
}

/* Buffers of parts, by their number; `views` are to be released. */
static int read_parts(PyObject *parts, Py_buffer views[LAC_PART_COUNT], lac_span spans[LAC_PART_COUNT])
{
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(parts, &position, &key, &value)) {
        int part = 0;
        if (lacpy_name_parse(lacpy_parts, "a part", key, &part) < 0 ||
            PyObject_GetBuffer(value, &views[part], PyBUF_SIMPLE) < 0)
            return -1;
        spans[part] = (lac_span){views[part].buf, (uint64_t)views[part].len};
    }
    return 0;
}

static PyObject *from_parts(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"pattern", "n", "k", "dtype", "parts", "encoding", "out_features", "in_features", NULL};
    (void)module;
    PyObject *pattern, *dtype, *parts, *encoding = NULL;
    long long n, k, n_out = 0, k_in = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OLLOO!|OLL:weight_from_parts", names, &pattern, &n, &k, &dtype,
                                     &PyDict_Type, &parts, &encoding, &n_out, &k_in))
        return NULL;
    lac_weight_info info = {.size = sizeof info, .n = n, .k = k, .n_out = n_out, .k_in = k_in};
    int number = LAC_INDEX_ENCODING_AUTO;
    if (lacpy_pattern_of(pattern, "pattern", &info.pattern) < 0 || lacpy_dtype_parse("dtype", dtype, &info.dtype) < 0 ||
        (encoding && lacpy_name_parse(lacpy_encodings, "encoding", encoding, &number) < 0))
        return NULL;
    info.encoding = (lac_index_encoding)number;
    Py_buffer views[LAC_PART_COUNT] = {{0}};
    lac_span spans[LAC_PART_COUNT] = {{0}};
    int result = read_parts(parts, views, spans);
    lac_weight *weight = NULL;
    if (!result) {
        lac_status status;
        Py_BEGIN_ALLOW_THREADS;
        status = lac_weight_from_parts(&info, spans, &weight);
        Py_END_ALLOW_THREADS;
        result = lacpy_check(status);
    }
    for (int i = 0; i < LAC_PART_COUNT; i++)
        if (views[i].obj) PyBuffer_Release(&views[i]);
    return result < 0 ? NULL : lacpy_weight_wrap(weight);
}

static PyObject *load(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"path", "name", NULL};
    (void)module;
    PyObject *path;
    const char *name = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&|z:load", names, PyUnicode_FSConverter, &path, &name)) return NULL;
    lac_weight *weight = NULL;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_weight_load(PyBytes_AsString(path), name, &weight);
    Py_END_ALLOW_THREADS;
    Py_DECREF(path);
    return lacpy_check(status) < 0 ? NULL : lacpy_weight_wrap(weight);
}

/* ---- methods */

static PyObject *save(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"path", "name", NULL};
    PyObject *path;
    const char *name = "weight";
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&|s:save", names, PyUnicode_FSConverter, &path, &name)) return NULL;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_weight_save(((lacpy_weight *)self)->weight, PyBytes_AsString(path), name);
    Py_END_ALLOW_THREADS;
    Py_DECREF(path);
    if (lacpy_check(status) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *dense(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"dtype", "out", NULL};
    lacpy_weight *self = (lacpy_weight *)object;
    PyObject *dtype = Py_None, *out = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O$O:dense", names, &dtype, &out)) return NULL;
    lac_dtype wanted = self->info.dtype;
    if (dtype != Py_None && lacpy_dtype_parse("dtype", dtype, &wanted) < 0) return NULL;
    const int64_t shape[2] = {self->info.n_out, self->info.k_in};
    PyObject *target = out != Py_None ? Py_NewRef(out) : lacpy_array_new(NULL, 2, shape, wanted, LAC_LAYOUT_ROW_MAJOR);
    lacpy_array array;
    lac_matrix matrix;
    if (!target || lacpy_matrix_get(target, "out", LACPY_WRITE, -1, -1, &array, &matrix) < 0) {
        Py_XDECREF(target);
        return NULL;
    }
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_weight_decompress(self->weight, &matrix);
    Py_END_ALLOW_THREADS;
    lacpy_array_release(&array);
    if (lacpy_check(status) < 0) Py_CLEAR(target);
    return target;
}

static PyObject *shard(PyObject *self, PyObject *args)
{
    PyObject *axis;
    long long begin, end;
    int number = 0;
    if (!PyArg_ParseTuple(args, "OLL:shard", &axis, &begin, &end) || lacpy_name_parse(lacpy_axes, "axis", axis, &number) < 0)
        return NULL;
    lac_weight *weight = NULL;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_weight_shard(((lacpy_weight *)self)->weight, (lac_axis)number, begin, end, &weight);
    Py_END_ALLOW_THREADS;
    return lacpy_check(status) < 0 ? NULL : lacpy_weight_wrap(weight);
}

/* {name: memoryview} of the parts that it has. */
static PyObject *parts_of(PyObject *object)
{
    PyObject *parts = PyDict_New();
    for (const lacpy_name *name = lacpy_parts; parts && name->text; name++) {
        lac_span span = {0};
        lac_status status = lac_weight_get_part(((lacpy_weight *)object)->weight, (lac_part)name->value, &span);
        if (status == LAC_STATUS_OK && !span.data) continue;
        PyObject *view = status == LAC_STATUS_OK ? lacpy_span_view(object, NULL, span.data, span.bytes) : lacpy_raise(status);
        if (!view || PyDict_SetItemString(parts, name->text, view) < 0) Py_CLEAR(parts);
        Py_XDECREF(view);
    }
    return parts;
}

static PyObject *get_parts(PyObject *object, void *unused)
{
    (void)unused;
    return parts_of(object);
}

/* By its parts, whose bytes are the file format's. */
static PyObject *reduce(PyObject *object, PyObject *unused)
{
    (void)unused;
    const lac_weight_info *info = &((lacpy_weight *)object)->info;
    PyObject *core = PyImport_ImportModule("lacuna._core"),
             *maker = core ? PyObject_GetAttrString(core, "weight_from_parts") : NULL;
    PyObject *parts = maker ? parts_of(object) : NULL, *copies = parts ? PyDict_New() : NULL, *key, *view;
    Py_ssize_t position = 0;
    while (copies && PyDict_Next(parts, &position, &key, &view)) {
        PyObject *bytes = PyBytes_FromObject(view);
        if (!bytes || PyDict_SetItem(copies, key, bytes) < 0) Py_CLEAR(copies);
        Py_XDECREF(bytes);
    }
    PyObject *pattern = copies ? lacpy_pattern_wrap(&info->pattern) : NULL;
    PyObject *encoding = pattern ? lacpy_name_text(lacpy_encodings, info->encoding) : NULL, *result = NULL;
    if (encoding)
        result = Py_BuildValue("O(OLLsOOLL)", maker, pattern, (long long)info->n, (long long)info->k,
                               lac_dtype_name(info->dtype), copies, encoding, (long long)info->n_out, (long long)info->k_in);
    Py_XDECREF(core);
    Py_XDECREF(maker);
    Py_XDECREF(parts);
    Py_XDECREF(copies);
    Py_XDECREF(pattern);
    Py_XDECREF(encoding);
    return result;
}

static PyObject *get_field(PyObject *self, void *field) { return lacpy_field_get(field, &((lacpy_weight *)self)->info); }

static PyObject *get_shape(PyObject *self, void *unused)
{
    (void)unused;
    return Py_BuildValue("(LL)", (long long)((lacpy_weight *)self)->info.n_out, (long long)((lacpy_weight *)self)->info.k_in);
}

static PyObject *get_nbytes(PyObject *self, void *unused)
{
    (void)unused;
    const lac_weight_info *info = &((lacpy_weight *)self)->info;
    return PyLong_FromUnsignedLongLong(info->value_bytes + info->index_bytes);
}

static PyObject *represent(PyObject *self)
{
    const lac_weight_info *info = &((lacpy_weight *)self)->info;
    char text[LAC_PATTERN_TEXT_SIZE] = "";
    lac_status status = lac_pattern_format(&info->pattern, text, sizeof text);
    if (status != LAC_STATUS_OK) return lacpy_raise(status);
    return PyUnicode_FromFormat("<lacuna.Weight %lld x %lld, %s, %s>", (long long)info->n_out, (long long)info->k_in, text,
                                lac_dtype_name(info->dtype));
}

static PyMethodDef methods[] = {
    {"save", LACPY_CALL(save, LACPY_KEYWORDS,
                        "save(path, name='weight')\n--\n\nWrites it as the only weight of a container, whole or not at all.")},
    {"dense",
     LACPY_CALL(dense, LACPY_KEYWORDS, "dense(dtype=None, *, out=None)\n--\n\nW with its zeros: a new numpy array, or out.")},
    {"shard", shard, METH_VARARGS,
     "shard(axis, begin, end)\n--\n\nRows ('n') or columns ('k') [begin, end) as a Weight of their own; both ends must lie on "
     "the boundary of a group."},
    {"__reduce__", reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};

static const PyGetSetDef more_attributes[] = {
    {"shape", get_shape, NULL, "(out_features, in_features)", NULL},
    {"nbytes", get_nbytes, NULL, "value_bytes + index_bytes", NULL},
    {"parts", get_parts, NULL, "{name: memoryview} of what docs/format.md specifies: 'values', 'index', ...", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyMemberDef members[] = {{"__weaklistoffset__", T_PYSSIZET, offsetof(lacpy_weight, weak), READONLY, NULL},
                                {NULL, 0, 0, 0, NULL}};

static PyMethodDef functions[] = {
    {"compress", LACPY_CALL(compress, LACPY_KEYWORDS,
                            "compress(w, mask, *, dtype=None, encoding='auto', overflow='error', threads=0)\n--\n\nThe "
                            "compressed W of w, [n, k]: a Weight. "
                            "mask is a Mask, or a pattern to prune to by magnitude.")},
    {"load",
     LACPY_CALL(load, LACPY_KEYWORDS,
                "load(path, name=None)\n--\n\nA Weight of a container; no name is needed where the file holds just one.")},
    {"weight_from_parts", LACPY_CALL(from_parts, LACPY_KEYWORDS,
                                     "weight_from_parts(pattern, n, k, dtype, parts, encoding='auto', out_features=0, "
                                     "in_features=0)\n--\n\nA Weight of bytes from elsewhere, which are "
                                     "copied and validated in full.")},
    {NULL, NULL, 0, NULL}};

int lacpy_weight_init(PyObject *module)
{
    PyGetSetDef *attributes = lacpy_attributes(lacpy_weight_fields, get_field, more_attributes);
    if (!attributes) return -1;
    PyType_Slot slots[] = {
        {Py_tp_doc, "A compressed W, the same for every device; it does not change. Made by compress(), load() and files."},
        {Py_tp_dealloc, destroy},
        {Py_tp_repr, represent},
        {Py_tp_methods, methods},
        {Py_tp_members, members},
        {Py_tp_getset, attributes},
        {0, NULL}};
    PyType_Spec spec = {.name = "lacuna.Weight",
                        .basicsize = sizeof(lacpy_weight),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                        .slots = slots};
    if (!(lacpy.weight = lacpy_type_add(module, &spec))) return -1;
    return PyModule_AddFunctions(module, functions);
}

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

PyObject *lacpy_weight_made(int checked, lac_weight *weight)
{
    if (checked == 0) return lacpy_weight_wrap(weight);
    lac_weight_free(weight); /* it may have been made, and a handler of what was logged have raised */
    return NULL;
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
    static const char *const names[] = {"w", "mask", NULL};
    (void)module;
    PyObject *values[2], *rest = NULL;
    lac_compress_options options;
    lacpy_array array;
    lac_matrix matrix;
    if (lacpy_arguments("compress", args, kwargs, names, 2, values, &rest) < 0) return NULL;
    int result = lacpy_compress_options_parse(&options, "compress", rest, NULL);
    Py_DECREF(rest);
    if (result < 0 || lacpy_matrix_get(values[0], "w", LACPY_READ, -1, -1, &array, &matrix) < 0) return NULL;
    const lac_mask *mask;
    lac_mask *made = NULL;
    lac_weight *weight = NULL;
    result = find_mask(values[1], &matrix, options.threads, &mask, &made);
    if (!result) {
        lac_status status;
        Py_BEGIN_ALLOW_THREADS;
        status = lac_weight_compress(&matrix, mask, &options, &weight);
        Py_END_ALLOW_THREADS;
        result = lacpy_check(status);
    }
    lac_mask_free(made);
    lacpy_array_release(&array);
    return lacpy_weight_made(result, weight);
}

/* Buffers of parts, by their number; `views` are to be released. */
static int read_parts(PyObject *parts, Py_buffer views[LAC_PART_COUNT], lac_span spans[LAC_PART_COUNT])
{
    PyObject *key, *value, *copy = PyDict_Copy(parts); /* the caller's may change while a buffer is made */
    Py_ssize_t position = 0;
    int result = copy ? 0 : -1;
    while (!result && PyDict_Next(copy, &position, &key, &value)) {
        int part = 0;
        result = lacpy_name_parse(lacpy_parts, "a part", key, &part);
        if (!result) result = PyObject_GetBuffer(value, &views[part], PyBUF_SIMPLE);
        if (!result) spans[part] = (lac_span){views[part].buf, (uint64_t)views[part].len};
    }
    Py_XDECREF(copy);
    return result;
}

/* What a weight would be, without its parts: pattern, n, k, dtype, encoding, out_features, in_features. */
static int read_info(PyObject *const values[7], lac_weight_info *info)
{
    int number = LAC_INDEX_ENCODING_AUTO;
    *info = (lac_weight_info){.size = sizeof *info};
    if (lacpy_pattern_of(values[0], "pattern", &info->pattern) < 0 ||
        lacpy_integer("n", values[1], INT64_MIN, INT64_MAX, &info->n) < 0 ||
        lacpy_integer("k", values[2], INT64_MIN, INT64_MAX, &info->k) < 0 ||
        lacpy_dtype_parse("dtype", values[3], &info->dtype) < 0 ||
        (values[4] && lacpy_name_parse(lacpy_encodings, "encoding", values[4], &number) < 0) ||
        (values[5] && lacpy_integer("out_features", values[5], INT64_MIN, INT64_MAX, &info->n_out) < 0) ||
        (values[6] && lacpy_integer("in_features", values[6], INT64_MIN, INT64_MAX, &info->k_in) < 0))
        return -1;
    info->encoding = (lac_index_encoding)number;
    return 0;
}

static PyObject *from_parts(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"pattern", "n", "k", "dtype", "parts", "encoding", "out_features", "in_features", NULL};
    (void)module;
    PyObject *values[8];
    lac_weight_info info;
    if (lacpy_arguments("weight_from_parts", args, kwargs, names, 5, values, NULL) < 0) return NULL;
    PyObject *const said[7] = {values[0], values[1], values[2], values[3], values[5], values[6], values[7]};
    if (read_info(said, &info) < 0) return NULL;
    if (!PyDict_Check(values[4])) {
        PyErr_Format(PyExc_TypeError, "parts is %R; it must be a dict of buffers", values[4]);
        return NULL;
    }
    Py_buffer views[LAC_PART_COUNT] = {{0}};
    lac_span spans[LAC_PART_COUNT] = {{0}};
    int result = read_parts(values[4], views, spans);
    lac_weight *weight = NULL;
    if (!result) {
        lac_status status;
        Py_BEGIN_ALLOW_THREADS;
        status = lac_weight_from_parts(&info, spans, &weight);
        Py_END_ALLOW_THREADS;
        result = lacpy_check(status);
    }
    PyObject *made = lacpy_weight_made(result, weight), *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback); /* the buffers' owners run code of theirs */
    for (int i = 0; i < LAC_PART_COUNT; i++)
        if (views[i].obj) PyBuffer_Release(&views[i]);
    PyErr_Restore(type, value, traceback);
    return made;
}

/* (WeightInfo, {part: bytes}) */
static PyObject *measure(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"pattern", "n", "k", "dtype", "encoding", "has_row_perm", "has_col_perm", NULL};
    (void)module;
    PyObject *values[7];
    lac_weight_info info;
    uint64_t bytes[LAC_PART_COUNT] = {0};
    if (lacpy_arguments("measure_weight", args, kwargs, names, 4, values, NULL) < 0) return NULL;
    PyObject *const said[7] = {values[0], values[1], values[2], values[3], values[4], NULL, NULL};
    if (read_info(said, &info) < 0) return NULL;
    const lacpy_field permuted[2] = {LACPY_FIELD(lac_weight_info, has_row_perm, LACPY_BOOL, "", NULL),
                                     LACPY_FIELD(lac_weight_info, has_col_perm, LACPY_BOOL, "", NULL)};
    for (int i = 0; i < 2; i++)
        if (values[5 + i] && lacpy_field_set(&permuted[i], &info, values[5 + i]) < 0) return NULL;
    if (lacpy_check(lac_weight_measure(&info, bytes)) < 0) return NULL;
    PyObject *sizes = PyDict_New();
    for (int i = 0; sizes && i < LAC_PART_COUNT; i++) {
        if (!bytes[i]) continue;
        PyObject *size = PyLong_FromUnsignedLongLong(bytes[i]);
        if (!size || PyDict_SetItemString(sizes, lac_part_name((lac_part)i), size) < 0) Py_CLEAR(sizes);
        Py_XDECREF(size);
    }
    PyObject *record = sizes ? lacpy_record(lacpy.weight_info, lacpy_weight_fields, &info) : NULL;
    PyObject *pair = record ? PyTuple_Pack(2, record, sizes) : NULL;
    Py_XDECREF(record);
    Py_XDECREF(sizes);
    return pair;
}

static PyObject *load(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"path", "name", NULL};
    (void)module;
    PyObject *values[2];
    const char *name = NULL;
    if (lacpy_arguments("load", args, kwargs, names, 1, values, NULL) < 0 ||
        (values[1] && values[1] != Py_None && !(name = lacpy_text("name", values[1]))))
        return NULL;
    PyObject *path = lacpy_path("path", values[0]);
    if (!path) return NULL;
    lac_weight *weight = NULL;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_weight_load(PyBytes_AsString(path), name, &weight);
    Py_END_ALLOW_THREADS;
    int checked = lacpy_check(status);
    Py_DECREF(path);
    return lacpy_weight_made(checked, weight);
}

/* ---- methods */

static PyObject *save(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"path", "name", NULL};
    PyObject *values[2];
    const char *name = "weight";
    if (lacpy_arguments("save", args, kwargs, names, 1, values, NULL) < 0 ||
        (values[1] && !(name = lacpy_text("name", values[1]))))
        return NULL;
    PyObject *path = lacpy_path("path", values[0]);
    if (!path) return NULL;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_weight_save(((lacpy_weight *)self)->weight, PyBytes_AsString(path), name);
    Py_END_ALLOW_THREADS;
    int checked = lacpy_check(status);
    Py_DECREF(path);
    return checked < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *dense(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"dtype", "out", NULL};
    lacpy_weight *self = (lacpy_weight *)object;
    PyObject *values[2];
    lac_dtype wanted = self->info.dtype;
    if (lacpy_arguments("dense", args, kwargs, names, 0, values, NULL) < 0) return NULL;
    PyObject *dtype = values[0] == Py_None ? NULL : values[0], *out = values[1] == Py_None ? NULL : values[1];
    if (dtype && lacpy_dtype_parse("dtype", dtype, &wanted) < 0) return NULL;
    if (dtype && out) {
        PyErr_Format(PyExc_TypeError, "dtype is %R, but out is given, whose dtype it is", dtype);
        return NULL;
    }
    const int64_t shape[2] = {self->info.n_out, self->info.k_in};
    PyObject *target = out ? Py_NewRef(out) : lacpy_array_new(NULL, 2, shape, wanted, LAC_LAYOUT_ROW_MAJOR, NULL);
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
    if (lacpy_check(status) < 0) Py_CLEAR(target);
    lacpy_array_release(&array);
    return target;
}

static PyObject *shard(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"axis", "begin", "end", NULL};
    PyObject *values[3];
    int64_t begin, end;
    int number = 0;
    if (lacpy_arguments("shard", args, kwargs, names, 3, values, NULL) < 0 ||
        lacpy_name_parse(lacpy_axes, "axis", values[0], &number) < 0 ||
        lacpy_integer("begin", values[1], INT64_MIN, INT64_MAX, &begin) < 0 ||
        lacpy_integer("end", values[2], INT64_MIN, INT64_MAX, &end) < 0)
        return NULL;
    lac_weight *weight = NULL;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_weight_shard(((lacpy_weight *)self)->weight, (lac_axis)number, begin, end, &weight);
    Py_END_ALLOW_THREADS;
    return lacpy_weight_made(lacpy_check(status), weight);
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
     LACPY_CALL(dense, LACPY_KEYWORDS, "dense(dtype=None, out=None)\n--\n\nW with its zeros: a new numpy array, or out.")},
    {"shard",
     LACPY_CALL(shard, LACPY_KEYWORDS,
                "shard(axis, begin, end)\n--\n\nRows ('n') or columns ('k') [begin, end) as a Weight of their own; both "
                "ends must lie on the boundary of a group.")},
    LACPY_COPIES,
    {"__reduce__", reduce, METH_NOARGS, "for pickle: by its parts"},
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
    {"measure_weight", LACPY_CALL(measure, LACPY_KEYWORDS,
                                  "measure_weight(pattern, n, k, dtype, encoding='auto', has_row_perm=False, "
                                  "has_col_perm=False)\n--\n\n(WeightInfo, {part: bytes}): how large a Weight would be; free "
                                  "distributions are taken to be full.")},
    {NULL, NULL, 0, NULL}};

int lacpy_weight_init(PyObject *module)
{
    lacpy.weight_info =
        lacpy_record_type(module, "lacuna.WeightInfo", "What a weight is, without its values.", lacpy_weight_fields);
    if (!lacpy.weight_info) return -1;
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

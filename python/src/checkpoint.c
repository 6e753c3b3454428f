/* checkpoint.c - prune_checkpoint(): every matrix of a file, into a container. */
#include "lacpy.h"

static const lacpy_field report_fields[] = {
    LACPY_FIELD(lac_layer_report, name, LACPY_TEXT, "of the tensor", NULL),
    LACPY_FIELD(lac_layer_report, pruned, LACPY_BOOL, "False: copied as it is", NULL),
    LACPY_FIELD(lac_layer_report, reason, LACPY_TEXT, "why not; '' when pruned", NULL),
    LACPY_FIELD(lac_layer_report, n, LACPY_INT64, "rows; 0 when not a matrix", NULL),
    LACPY_FIELD(lac_layer_report, k, LACPY_INT64, "columns; 0 when not a matrix", NULL),
    LACPY_FIELD(lac_layer_report, dense_bytes, LACPY_UINT64, "that it had", NULL),
    LACPY_FIELD(lac_layer_report, stored_bytes, LACPY_UINT64, "that it has now", NULL),
    LACPY_FIELD(lac_layer_report, energy_kept, LACPY_DOUBLE, "share of the sum of squares; 1 when copied", NULL),
    LACPY_FIELD(lac_layer_report, seconds, LACPY_DOUBLE, "that it took", NULL),
    LACPY_FIELD(lac_layer_report, index, LACPY_INT64, "this is tensor index ...", NULL),
    LACPY_FIELD(lac_layer_report, total, LACPY_INT64, "... of total", NULL),
    LACPY_FIELD(lac_layer_report, bytes_done, LACPY_UINT64, "of the input so far", NULL),
    LACPY_FIELD(lac_layer_report, bytes_total, LACPY_UINT64, "of the input in all", NULL),
    LACPY_FIELD(lac_layer_report, output_error, LACPY_DOUBLE,
                "what the outputs lose over the calibration, as a share; negative when there is none", NULL),
    LACPY_FIELD(lac_layer_report, resumed, LACPY_BOOL, "an earlier run had finished it; seconds are that run's", NULL),
    LACPY_FIELD(lac_layer_report, pattern, LACPY_PATTERN, "when pruned, else None", NULL),
    LACPY_FIELD(lac_layer_report, loss_rise, LACPY_DOUBLE,
                "by 'fisher': what the loss is taken to rise by; negative when there are no gradients", NULL),
    LACPY_FIELD(lac_layer_report, moved, LACPY_FLAGS,
                "'rows': moved because it is a producer; 'columns': because it is a consumer", lacpy_permutations),
    {NULL, 0, 0, NULL, NULL}};

static const lacpy_field option_fields[] = {LACPY_FIELD(lac_checkpoint_options, keep_dense, LACPY_BOOL, "", NULL),
                                            LACPY_FIELD(lac_checkpoint_options, resume, LACPY_ENUM, "", lacpy_resumes),
                                            {NULL, 0, 0, NULL, NULL}};

static PyTypeObject *report_record;

static int report(void *user, const lac_layer_report *layer)
{
    lac_layer_report known = *layer;
    if (!known.pruned) known.pattern = (lac_pattern){0};
    return lacpy_callback_report(user, &known);
}

/* ---- options */

/* The three lists of texts. */
static int read_texts(lacpy_checkpoint *held, PyObject *rest)
{
    lac_checkpoint_options *o = &held->options;
    const struct {
        const char *name;
        size_t *count;
    } lists[] = {{"include", &o->include_count}, {"exclude", &o->exclude_count}, {"producers", &o->producer_count}};
    for (int i = 0; i < 3; i++) {
        PyObject *list = lacpy_take(rest, lists[i].name);
        int result = lacpy_texts(lists[i].name, list, &held->texts[i], lists[i].count, &held->held[i]);
        Py_XDECREF(list);
        if (result < 0) return -1;
    }
    o->include = held->texts[0], o->exclude = held->texts[1], o->producers = held->texts[2];
    return 0;
}

static int read_pattern(lacpy_checkpoint *held, PyObject *rest)
{
    PyObject *pattern = lacpy_take(rest, "pattern");
    if (!pattern) return 0;
    int result = lacpy_pattern_of(pattern, "pattern", &held->pattern);
    held->options.pattern = &held->pattern;
    Py_DECREF(pattern);
    return result;
}

static int read_allocation(lacpy_checkpoint *held, PyObject *rest)
{
    held->allocation = lacpy_take(rest, "allocation");
    if (!held->allocation) return 0;
    if (!PyObject_TypeCheck(held->allocation, lacpy.allocation)) {
        PyErr_Format(PyExc_TypeError, "allocation is %R; it must be an Allocation", held->allocation);
        return -1;
    }
    held->options.allocation = ((lacpy_allocation *)held->allocation)->allocation;
    return 0;
}

static int read_calibration(lacpy_checkpoint *held, PyObject *rest)
{
    PyObject *path = lacpy_take(rest, "calibration");
    if (!path) return 0;
    held->calibration = lacpy_path("calibration", path);
    Py_DECREF(path);
    if (!held->calibration) return -1;
    held->options.calibration = PyBytes_AsString(held->calibration);
    return 0;
}

static int read_callback(lacpy_checkpoint *held, PyObject *rest)
{
    PyObject *function = lacpy_take(rest, "on_layer");
    int result = lacpy_callback_begin(&held->on_layer, "on_layer", function, report_record, report_fields);
    Py_XDECREF(function);
    held->options.on_layer = report;
    held->options.user = &held->on_layer;
    return result;
}

int lacpy_checkpoint_parse(lacpy_checkpoint *held, const char *function, PyObject *in, PyObject *kwargs, PyObject **rest)
{
    *held = (lacpy_checkpoint){.options = {.size = sizeof held->options}};
    PyObject *of_compress = NULL, *of_prune = NULL, *others = NULL;
    int result = lacpy_fields_parse(option_fields, &held->options, function, kwargs, &of_compress);
    if (!result) result = lacpy_compress_options_parse(&held->compress, function, of_compress, &of_prune);
    if (!result) result = lacpy_prune_options_parse(&held->prune, function, of_prune, true, &others);
    if (!result) {
        held->options.compress = &held->compress;
        held->options.prune = &held->prune.options;
        held->prune.options.threads = held->compress.threads;
        if (!(held->in = lacpy_path("input", in)) || read_pattern(held, others) < 0 || read_texts(held, others) < 0 ||
            read_allocation(held, others) < 0 || read_calibration(held, others) < 0 || read_callback(held, others) < 0)
            result = -1;
    }
    Py_XDECREF(of_compress);
    Py_XDECREF(of_prune);
    if (result < 0) {
        Py_XDECREF(others);
        lacpy_checkpoint_release(held);
        return -1;
    }
    *rest = others;
    return 0;
}

void lacpy_checkpoint_release(lacpy_checkpoint *held)
{
    lacpy_prune_options_release(&held->prune);
    lacpy_callback_end(&held->on_layer);
    Py_CLEAR(held->in);
    Py_CLEAR(held->calibration);
    Py_CLEAR(held->allocation);
    for (int i = 0; i < 3; i++) {
        PyMem_Free(held->texts[i]);
        held->texts[i] = NULL;
        Py_CLEAR(held->held[i]);
    }
}

/* ---- the call */

static PyObject *run(lacpy_checkpoint *held, PyObject *out)
{
    PyObject *path = lacpy_path("output", out);
    if (!path) return NULL;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_checkpoint_prune(PyBytes_AsString(held->in), PyBytes_AsString(path), &held->options);
    Py_END_ALLOW_THREADS;
    int checked = lacpy_callback_check(&held->on_layer, status);
    Py_DECREF(path);
    return checked < 0 ? NULL : Py_NewRef(held->on_layer.reports);
}

static PyObject *prune_checkpoint(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"input", "output", "pattern", NULL};
    (void)module;
    PyObject *values[3], *rest = NULL, *others = NULL, *result = NULL;
    lacpy_checkpoint held;
    if (lacpy_arguments("prune_checkpoint", args, kwargs, names, 2, values, &rest) < 0) return NULL;
    int ready = values[2] ? PyDict_SetItemString(rest, "pattern", values[2]) : 0;
    if (!ready && lacpy_checkpoint_parse(&held, "prune_checkpoint", values[0], rest, &others) == 0) {
        if (lacpy_none_left("prune_checkpoint", others) == 0) result = run(&held, values[1]);
        Py_DECREF(others);
        lacpy_checkpoint_release(&held);
    }
    Py_DECREF(rest);
    return result;
}

static PyMethodDef functions[] = {
    {"prune_checkpoint",
     LACPY_CALL(
         prune_checkpoint, LACPY_KEYWORDS,
         "prune_checkpoint(input, output, pattern=None, *, include=(), exclude=(), method='magnitude', score='l2', "
         "calibration=None, damping=0.01, permute=(), permute_rounds=100, transposable=False, schedule=(), device=None, "
         "dtype=None, encoding='auto', overflow='error', keep_dense=False, on_layer=None, resume='no', allocation=None, "
         "producers=(), threads=0)\n--\n\nPrunes a checkpoint into a container, one tensor at a time, and gives a "
         "LayerReport of each. on_layer is called with each as it is done; what it raises stops the call. calibration is a "
         "file of inputs or gradients; include and exclude are globs on names.")},
    {NULL, NULL, 0, NULL}};

int lacpy_checkpoint_init(PyObject *module)
{
    report_record = lacpy_record_type(module, "lacuna.LayerReport", "What became of a tensor of a checkpoint.", report_fields);
    return report_record ? PyModule_AddFunctions(module, functions) : -1;
}

/* allocate.c - allocate(): which pattern each layer of a checkpoint gets within a budget, and the Allocation that says so. */
#include "lacpy.h"

static const lacpy_field choice_fields[] = {
    LACPY_FIELD(lac_choice_info, name, LACPY_TEXT, "of the layer's weight", NULL),
    LACPY_FIELD(lac_choice_info, n, LACPY_INT64, "rows", NULL),
    LACPY_FIELD(lac_choice_info, k, LACPY_INT64, "columns", NULL),
    LACPY_FIELD(lac_choice_info, pruned, LACPY_BOOL, "False: dense", NULL),
    LACPY_FIELD(lac_choice_info, pattern, LACPY_PATTERN, "when pruned, else None", NULL),
    LACPY_FIELD(lac_choice_info, loss, LACPY_DOUBLE, "what pruning it so loses, as the method sees it", NULL),
    LACPY_FIELD(lac_choice_info, density, LACPY_DOUBLE, "share of the weights that stay", NULL),
    LACPY_FIELD(lac_choice_info, seconds, LACPY_DOUBLE, "predicted; negative without a device", NULL),
    LACPY_FIELD(lac_choice_info, dense_seconds, LACPY_DOUBLE, "likewise, dense", NULL),
    {NULL, 0, 0, NULL, NULL}};

static const lacpy_field info_fields[] = {
    LACPY_FIELD(lac_allocation_info, layers, LACPY_INT64, "how many", NULL),
    LACPY_FIELD(lac_allocation_info, pruned, LACPY_INT64, "of them", NULL),
    LACPY_FIELD(lac_allocation_info, loss, LACPY_DOUBLE, "the sum over the layers", NULL),
    LACPY_FIELD(lac_allocation_info, loss_bound, LACPY_DOUBLE, "no choice of these patterns within the budget loses less",
                NULL),
    LACPY_FIELD(lac_allocation_info, density, LACPY_DOUBLE, "of all layers", NULL),
    LACPY_FIELD(lac_allocation_info, seconds, LACPY_DOUBLE, "the sum; negative without a device", NULL),
    LACPY_FIELD(lac_allocation_info, dense_seconds, LACPY_DOUBLE, "likewise, all dense", NULL),
    {NULL, 0, 0, NULL, NULL}};

static const lacpy_field option_fields[] = {LACPY_FIELD(lac_allocate_options, budget, LACPY_ENUM, "", lacpy_budgets),
                                            LACPY_FIELD(lac_allocate_options, amount, LACPY_DOUBLE, "", NULL),
                                            LACPY_FIELD(lac_allocate_options, m, LACPY_INT64, "", NULL),
                                            {NULL, 0, 0, NULL, NULL}};

static PyTypeObject *choice_record;

/* ---- Allocation */

static PyObject *choice_of(lac_choice_info *info)
{
    if (!info->pruned) info->pattern = (lac_pattern){0};
    return lacpy_record(choice_record, choice_fields, info);
}

static Py_ssize_t length(PyObject *self) { return (Py_ssize_t)((lacpy_allocation *)self)->info.layers; }

static PyObject *layer(PyObject *self, Py_ssize_t index)
{
    lac_choice_info info = {.size = sizeof info};
    if (index < 0 || index >= length(self)) {
        PyErr_Format(PyExc_IndexError, "index is %zd; there are %zd layers", index, length(self));
        return NULL;
    }
    lac_status status = lac_allocation_get_layer(((lacpy_allocation *)self)->allocation, index, &info);
    return status == LAC_STATUS_OK ? choice_of(&info) : lacpy_raise(status);
}

static PyObject *options_of(PyObject *self, PyObject *number)
{
    int64_t index;
    if (lacpy_integer("index", number, 0, length(self) - 1, &index) < 0) return NULL;
    PyObject *list = PyList_New(0);
    for (int64_t i = 0; list; i++) {
        lac_choice_info info = {.size = sizeof info};
        lac_status status = lac_allocation_get_option(((lacpy_allocation *)self)->allocation, index, i, &info);
        if (status == LAC_STATUS_NOT_FOUND) break;
        PyObject *choice = status == LAC_STATUS_OK ? choice_of(&info) : lacpy_raise(status);
        if (!choice || PyList_Append(list, choice) < 0) Py_CLEAR(list);
        Py_XDECREF(choice);
    }
    return list;
}

static void destroy(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    lac_allocation_free(((lacpy_allocation *)self)->allocation);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *get_field(PyObject *self, void *field) { return lacpy_field_get(field, &((lacpy_allocation *)self)->info); }

static PyObject *represent(PyObject *self)
{
    const lac_allocation_info *info = &((lacpy_allocation *)self)->info;
    return PyUnicode_FromFormat("<lacuna.Allocation of %lld layers, %lld pruned>", (long long)info->layers,
                                (long long)info->pruned);
}

static PyObject *wrap(lac_allocation *allocation)
{
    lacpy_allocation *self = PyObject_New(lacpy_allocation, lacpy.allocation);
    if (!self) {
        lac_allocation_free(allocation);
        return NULL;
    }
    self->allocation = allocation;
    self->info = (lac_allocation_info){.size = sizeof self->info};
    lac_status status = lac_allocation_get_info(allocation, &self->info);
    if (status == LAC_STATUS_OK) return (PyObject *)self;
    Py_DECREF(self);
    return lacpy_raise(status);
}

/* ---- the call */

/* What lac_allocate_options points to. */
typedef struct held_options {
    lac_allocate_options options;
    lac_pattern *patterns;
    lacpy_device *device;
    lac_plan_options plan;
    PyObject *plan_held;
} held_options;

static void release(held_options *held)
{
    PyMem_Free(held->patterns);
    Py_XDECREF((PyObject *)held->device);
    Py_XDECREF(held->plan_held);
}

/* Takes its own keywords out of `rest`, and leaves pruning's device, which is here called prune_device, as pruning calls it. */
static int parse(held_options *held, PyObject *const values[4], PyObject *rest, PyObject **others)
{
    *held = (held_options){.options = {.size = sizeof held->options}};
    PyObject *device = lacpy_take(rest, "device"), *plan = lacpy_take(rest, "plan"),
             *prune_device = lacpy_take(rest, "prune_device");
    int result = lacpy_patterns_of(values[1], "patterns", &held->patterns, &held->options.pattern_count);
    held->options.patterns = held->patterns;
    if (!result) result = lacpy_field_set(&option_fields[0], &held->options, values[2]);
    if (!result) result = lacpy_field_set(&option_fields[1], &held->options, values[3]);
    if (!result) result = lacpy_fields_parse(option_fields + 2, &held->options, "allocate", rest, others);
    if (!result && device && !(held->device = lacpy_device_of(device))) result = -1;
    if (!result && held->device) held->options.device = held->device->device;
    if (!result) result = lacpy_plan_options_of(plan, "plan", &held->plan, &held->plan_held);
    if (!result && held->plan_held) held->options.plan = &held->plan;
    if (!result && prune_device) result = PyDict_SetItemString(*others, "device", prune_device);
    Py_XDECREF(device);
    Py_XDECREF(plan);
    Py_XDECREF(prune_device);
    return result;
}

/* What prune_checkpoint() takes and this does not, though it goes by the same struct: it would be passed over without a word. */
static int refuse_unused(PyObject *others)
{
    static const char *const unused[] = {"pattern", "keep_dense", "resume", "allocation"};
    for (size_t i = 0; i < sizeof unused / sizeof *unused; i++) {
        if (!PyDict_GetItemString(others, unused[i])) continue;
        PyErr_Format(PyExc_TypeError, "allocate() got an unexpected keyword argument '%s'", unused[i]);
        return -1;
    }
    return 0;
}

static PyObject *allocate(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"input", "patterns", "budget", "amount", NULL};
    (void)module;
    PyObject *values[4], *rest = NULL, *others = NULL, *left = NULL, *result = NULL;
    held_options held;
    lacpy_checkpoint checkpoint;
    if (lacpy_arguments("allocate", args, kwargs, names, 4, values, &rest) < 0) return NULL;
    if (parse(&held, values, rest, &others) == 0 && refuse_unused(others) == 0 &&
        lacpy_checkpoint_parse(&checkpoint, "allocate", values[0], others, &left) == 0) {
        if (lacpy_none_left("allocate", left) == 0) {
            lac_allocation *allocation = NULL;
            lac_status status;
            Py_BEGIN_ALLOW_THREADS;
            status = lac_checkpoint_allocate(PyBytes_AsString(checkpoint.in), &checkpoint.options, &held.options, &allocation);
            Py_END_ALLOW_THREADS;
            if (lacpy_callback_check(&checkpoint.on_layer, status) == 0)
                result = wrap(allocation);
            else
                lac_allocation_free(allocation);
        }
        Py_DECREF(left);
        lacpy_checkpoint_release(&checkpoint);
    }
    release(&held);
    Py_XDECREF(others);
    Py_DECREF(rest);
    return result;
}

static PyMethodDef methods[] = {{"options", options_of, METH_O,
                                 "options(index, /)\n--\n\nWhat a layer could have been: dense, then pattern after pattern."},
                                {NULL, NULL, 0, NULL}};

static PyMethodDef functions[] = {
    {"allocate",
     LACPY_CALL(allocate, LACPY_KEYWORDS,
                "allocate(input, patterns, budget, amount, *, device=None, m=1, plan=None, include=(), exclude=(), "
                "method='magnitude', score='l2', calibration=None, damping=0.01, permute=(), permute_rounds=100, "
                "transposable=False, schedule=(), prune_device=None, dtype=None, encoding='auto', overflow='error', "
                "on_layer=None, producers=(), threads=0)\n--\n\nWhich of the patterns each layer of a checkpoint gets, or "
                "none, so that least is lost within the budget: 'density', the share of the weights that stays, or 'speedup', "
                "by the performance model on `device` with m tokens and a dict of Plan's options. Writes nothing.")},
    {NULL, NULL, 0, NULL}};

int lacpy_allocate_init(PyObject *module)
{
    choice_record = lacpy_record_type(module, "lacuna.Choice", "One layer, under one pattern or dense.", choice_fields);
    PyGetSetDef *attributes = lacpy_attributes(info_fields, get_field, NULL);
    if (!choice_record || !attributes) return -1;
    PyType_Slot slots[] = {
        {Py_tp_doc, "Which pattern each layer of a checkpoint gets, as a sequence of Choices. Made by allocate()."},
        {Py_tp_dealloc, destroy},
        {Py_tp_repr, represent},
        {Py_sq_length, length},
        {Py_sq_item, layer},
        {Py_tp_methods, methods},
        {Py_tp_getset, attributes},
        {0, NULL}};
    PyType_Spec spec = {.name = "lacuna.Allocation",
                        .basicsize = sizeof(lacpy_allocation),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                        .slots = slots};
    if (!(lacpy.allocation = lacpy_type_add(module, &spec))) return -1;
    return PyModule_AddFunctions(module, functions);
}

/* plan.c - Plan: one chosen, prepared kernel, called like a function (plan_call.c). */
#include <string.h>

#include "plan.h"

static const lacpy_field option_fields[] = {LACPY_FIELD(lac_plan_options, x_layout, LACPY_ENUM, "", lacpy_layouts),
                                            LACPY_FIELD(lac_plan_options, y_layout, LACPY_ENUM, "", lacpy_layouts),
                                            LACPY_FIELD(lac_plan_options, x_dtype, LACPY_DTYPE, "", NULL),
                                            LACPY_FIELD(lac_plan_options, y_dtype, LACPY_DTYPE, "", NULL),
                                            LACPY_FIELD(lac_plan_options, bias_dtype, LACPY_DTYPE, "", NULL),
                                            LACPY_FIELD(lac_plan_options, c_dtype, LACPY_DTYPE, "", NULL),
                                            LACPY_FIELD(lac_plan_options, precision, LACPY_ENUM, "", lacpy_precisions),
                                            LACPY_FIELD_AS(lac_plan_options, "bias", has_bias, LACPY_BOOL, "", NULL),
                                            LACPY_FIELD(lac_plan_options, activation, LACPY_ENUM, "", lacpy_activations),
                                            LACPY_FIELD_AS(lac_plan_options, "residual", has_residual, LACPY_BOOL, "", NULL),
                                            LACPY_FIELD(lac_plan_options, kernel, LACPY_TEXT, "", NULL),
                                            LACPY_FIELD(lac_plan_options, threads, LACPY_INT32, "", NULL),
                                            LACPY_FIELD(lac_plan_options, measure, LACPY_BOOL, "", NULL),
                                            LACPY_FIELD(lac_plan_options, predict_only, LACPY_BOOL, "", NULL),
                                            LACPY_FIELD(lac_plan_options, no_dense, LACPY_BOOL, "", NULL),
                                            LACPY_FIELD(lac_plan_options, no_timing, LACPY_BOOL, "", NULL),
                                            {NULL, 0, 0, NULL, NULL}};

/* Of these options a plan tells what they were. */
static const lacpy_field resolved_fields[] = {
    LACPY_FIELD(lac_plan_options, x_layout, LACPY_ENUM, "'token' or 'feature': X[m][k] or X[k][m]", lacpy_layouts),
    LACPY_FIELD(lac_plan_options, y_layout, LACPY_ENUM, "likewise of Y and C", lacpy_layouts),
    LACPY_FIELD(lac_plan_options, x_dtype, LACPY_DTYPE, "of X", NULL),
    LACPY_FIELD(lac_plan_options, y_dtype, LACPY_DTYPE, "of Y", NULL),
    LACPY_FIELD(lac_plan_options, bias_dtype, LACPY_DTYPE, "of the bias", NULL),
    LACPY_FIELD(lac_plan_options, c_dtype, LACPY_DTYPE, "of C", NULL),
    LACPY_FIELD_AS(lac_plan_options, "has_bias", has_bias, LACPY_BOOL, "it adds a bias", NULL),
    LACPY_FIELD(lac_plan_options, activation, LACPY_ENUM, "'none', 'relu', 'gelu', 'gelu_tanh' or 'silu'", lacpy_activations),
    LACPY_FIELD_AS(lac_plan_options, "has_residual", has_residual, LACPY_BOOL, "it adds beta * C", NULL),
    {NULL, 0, 0, NULL, NULL}};

static const lacpy_field info_fields[] = {
    LACPY_FIELD(lac_plan_info, kernel, LACPY_TEXT, "the registry's name for it", NULL),
    LACPY_FIELD(lac_plan_info, is_dense, LACPY_BOOL, "a kernel that ignores the sparsity", NULL),
    LACPY_FIELD(lac_plan_info, forced, LACPY_BOOL, "by kernel=...", NULL),
    LACPY_FIELD(lac_plan_info, predicted_seconds, LACPY_DOUBLE, "by the performance model", NULL),
    LACPY_FIELD(lac_plan_info, bound, LACPY_TEXT, "what the model says limits it", NULL),
    LACPY_FIELD(lac_plan_info, candidates, LACPY_INT32, "how many kernels applied", NULL),
    LACPY_FIELD(lac_plan_info, m, LACPY_INT64, "tokens", NULL),
    LACPY_FIELD(lac_plan_info, n, LACPY_INT64, "the width of Y", NULL),
    LACPY_FIELD(lac_plan_info, k, LACPY_INT64, "the width of X", NULL),
    LACPY_FIELD(lac_plan_info, workspace_bytes, LACPY_SIZE, "that a call needs", NULL),
    LACPY_FIELD(lac_plan_info, ceiling_seconds, LACPY_DOUBLE, "no call is faster, by the model", NULL),
    LACPY_FIELD(lac_plan_info, dense_bytes, LACPY_UINT64, "of W with its zeros, which a dense kernel keeps; else 0", NULL),
    LACPY_FIELD(lac_plan_info, note, LACPY_TEXT, "faster kernels that could not be had, and why; or who does its products",
                NULL),
    LACPY_FIELD(lac_plan_info, rivals, LACPY_INT32, "other candidates between which timing decides", NULL),
    LACPY_FIELD(lac_plan_info, measured_seconds, LACPY_DOUBLE, "of the kernel, where it was timed; else 0", NULL),
    {NULL, 0, 0, NULL, NULL}};

static const lacpy_field level_fields[] = {
    LACPY_FIELD(lac_level_info, name, LACPY_TEXT, "'memory', 'l2', 'fma', ...", NULL),
    LACPY_FIELD(lac_level_info, unit, LACPY_TEXT, "of amount", NULL),
    LACPY_FIELD(lac_level_info, amount, LACPY_DOUBLE, "that one call asks for", NULL),
    LACPY_FIELD(lac_level_info, rate, LACPY_DOUBLE, "that the device gives a second; 0: it has none", NULL),
    LACPY_FIELD(lac_level_info, seconds, LACPY_DOUBLE, "that it takes", NULL),
    LACPY_FIELD(lac_level_info, is_bound, LACPY_BOOL, "the level that takes longest", NULL),
    LACPY_FIELD(lac_level_info, remedy, LACPY_TEXT, "what would make it take less", NULL),
    {NULL, 0, 0, NULL, NULL}};

static PyTypeObject *level_record;

/* ---- making one */

static lacpy_device *device_or_cpu(PyObject *object)
{
    if (object && object != Py_None) return lacpy_device_of(object);
    PyObject *cpu = PyUnicode_FromString("cpu");
    lacpy_device *device = cpu ? lacpy_device_of(cpu) : NULL;
    Py_XDECREF(cpu);
    return device;
}

static int prepare(lacpy_plan *self, lac_dtype dtype, long long m)
{
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_plan_create(self->device->device, self->weight, m, &self->options, &self->plan);
    if (status == LAC_STATUS_OK) status = lac_plan_get_info(self->plan, &self->info);
    Py_END_ALLOW_THREADS;
    lac_plan_options *o = &self->options;
    o->kernel = NULL; /* the caller's */
    if (!o->x_dtype) o->x_dtype = dtype;
    if (!o->y_dtype) o->y_dtype = o->x_dtype;
    if (!o->bias_dtype) o->bias_dtype = o->y_dtype;
    if (!o->c_dtype) o->c_dtype = o->y_dtype;
    return lacpy_check(status);
}

int lacpy_plan_options_of(PyObject *object, const char *name, lac_plan_options *options, PyObject **held)
{
    *options = (lac_plan_options){.size = sizeof *options};
    *held = NULL;
    if (!object || object == Py_None) return 0;
    if (!PyDict_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s is %R; it must be a dict of Plan's options", name, object);
        return -1;
    }
    PyObject *copy = PyDict_Copy(object); /* its texts are used while others may change the dict */
    if (!copy) return -1;
    if (lacpy_fields_parse(option_fields, options, "Plan", copy, NULL) < 0) {
        Py_DECREF(copy);
        return -1;
    }
    *held = copy;
    return 0;
}

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"weight", "m", "device", NULL};
    PyObject *values[3], *rest = NULL;
    int64_t m;
    if (lacpy_arguments("Plan", args, kwargs, names, 2, values, &rest) < 0) return NULL;
    lacpy_plan *self = PyObject_New(lacpy_plan, type);
    if (self) {
        memset((char *)self + offsetof(lacpy_plan, plan), 0, sizeof *self - offsetof(lacpy_plan, plan));
        self->info.size = sizeof self->info;
        self->options.size = sizeof self->options;
    }
    int result = self ? 0 : -1;
    if (!result && !PyObject_TypeCheck(values[0], lacpy.weight)) {
        PyErr_Format(PyExc_TypeError, "weight is %R; it must be a Weight", values[0]);
        result = -1;
    }
    if (!result) result = lacpy_integer("m", values[1], INT64_MIN, INT64_MAX, &m);
    if (!result) result = lacpy_fields_parse(option_fields, &self->options, "Plan", rest, NULL);
    if (!result && !(self->device = device_or_cpu(values[2]))) result = -1;
    if (!result) {
        self->weight = lac_weight_retain(((lacpy_weight *)values[0])->weight);
        result = prepare(self, ((lacpy_weight *)values[0])->info.dtype, m);
    }
    Py_DECREF(rest);
    if (result < 0) Py_CLEAR(self);
    return (PyObject *)self;
}

static void destroy(PyObject *object)
{
    lacpy_plan *self = (lacpy_plan *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_BEGIN_ALLOW_THREADS; /* on a GPU releasing memory waits for the work that uses it */
    for (int i = 0; i < self->slot_count; i++) lac_device_release(self->device->device, self->slots[i].block);
    lac_plan_free(self->plan);
    Py_END_ALLOW_THREADS;
    PyMem_Free(self->slots);
    lac_weight_free(self->weight);
    Py_XDECREF((PyObject *)self->device);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* ---- what it tells */

static PyObject *explain(PyObject *object, PyObject *unused)
{
    (void)unused;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list; i++) {
        lac_level_info level = {.size = sizeof level};
        lac_status status = lac_plan_explain(((lacpy_plan *)object)->plan, i, &level);
        if (status == LAC_STATUS_NOT_FOUND) break;
        PyObject *record = status == LAC_STATUS_OK ? lacpy_record(level_record, level_fields, &level) : lacpy_raise(status);
        if (!record || PyList_Append(list, record) < 0) Py_CLEAR(list);
        Py_XDECREF(record);
    }
    return list;
}

static PyObject *get_info(PyObject *self, void *field) { return lacpy_field_get(field, &((lacpy_plan *)self)->info); }
static PyObject *get_option(PyObject *self, void *field) { return lacpy_field_get(field, &((lacpy_plan *)self)->options); }

static PyObject *get_device(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef((PyObject *)((lacpy_plan *)self)->device);
}

static PyObject *get_weight(PyObject *self, void *unused)
{
    (void)unused;
    return lacpy_weight_wrap(lac_weight_retain(((lacpy_plan *)self)->weight));
}

static PyObject *represent(PyObject *object)
{
    const lacpy_plan *self = (lacpy_plan *)object;
    return PyUnicode_FromFormat("<lacuna.Plan %lld, %lld, %lld on %s: %s>", (long long)self->info.m, (long long)self->info.n,
                                (long long)self->info.k, self->device->info.name, self->info.kernel);
}

static PyMethodDef methods[] = {
    {"explain", explain, METH_NOARGS,
     "explain()\n--\n\nThe levels of the performance model behind predicted_seconds, from memory inwards."},
    {"reference", LACPY_CALL(lacpy_plan_reference, LACPY_KEYWORDS,
                             "reference(x, *, bias=None, c=None, alpha=1, beta=None)\n--\n\n(y, bound): the same in double by "
                             "obvious loops, and how far a call's result may be from it, element by element.")},
    {"execute_pointers", (PyCFunction)(void (*)(void))lacpy_plan_execute_pointers, METH_FASTCALL,
     "execute_pointers(x, ldx, y, ldy, bias, c, ldc, stream, workspace, workspace_bytes, /)\n--\n\nA call by addresses, for "
     "those who have checked what lies there; 0 where there is none. Nothing is checked that Lacuna cannot see."},
    {NULL, NULL, 0, NULL}};

static const PyGetSetDef more_attributes[] = {{"device", get_device, NULL, "the Device that it runs on", NULL},
                                              {"weight", get_weight, NULL, "the Weight that it multiplies by", NULL},
                                              {NULL, NULL, NULL, NULL, NULL}};

int lacpy_plan_init(PyObject *module)
{
    level_record =
        lacpy_record_type(module, "lacuna.Level", "A resource that a call uses, and what it asks of it.", level_fields);
    PyGetSetDef *of_options = lacpy_attributes(resolved_fields, get_option, more_attributes);
    PyGetSetDef *attributes = of_options ? lacpy_attributes(info_fields, get_info, of_options) : NULL;
    if (!level_record || !attributes) return -1;
    PyType_Slot slots[] = {{Py_tp_doc, "Plan(weight, m, device='cpu', *, x_layout='token', y_layout='token', x_dtype=None, "
                                       "y_dtype=None, bias_dtype=None, c_dtype=None, "
                                       "precision='default', bias=False, activation='none', residual=False, kernel=None, "
                                       "threads=0, measure=False, predict_only=False, no_dense=False, "
                                       "no_timing=False)\n--\n\nOne chosen, prepared kernel for Y = act(alpha X W^T + bias) + "
                                       "beta C with m tokens. Call it: plan(x, out=None, *, "
                                       "bias=None, c=None, alpha=1, beta=None, stream=None)."},
                           {Py_tp_new, make},
                           {Py_tp_dealloc, destroy},
                           {Py_tp_call, lacpy_plan_run},
                           {Py_tp_repr, represent},
                           {Py_tp_methods, methods},
                           {Py_tp_getset, attributes},
                           {0, NULL}};
    PyType_Spec spec = {.name = "lacuna.Plan",
                        .basicsize = sizeof(lacpy_plan),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                        .slots = slots};
    return (lacpy.plan = lacpy_type_add(module, &spec)) ? 0 : -1;
}

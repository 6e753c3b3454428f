/* plan.c - Plan: one chosen, prepared kernel, called like a function. */
#include <string.h>

#include "lacpy.h"

/* Scratch memory that calls need. What one call has, no other may use at the same time; on a GPU, where a call's work goes on after it returns, the next
 * on the same stream may. */
typedef struct slot {
    void *block, *stream;
    bool busy;
} slot;

typedef struct lacpy_plan {
    PyObject_HEAD;
    lac_plan *plan;
    lac_plan_info info;
    lac_plan_options options; /* dtypes as they were resolved */
    lacpy_device *device;
    PyObject *weight;
    slot *slots;
    int slot_count;
} lacpy_plan;

const lacpy_field lacpy_plan_fields[] = {LACPY_FIELD(lac_plan_options, x_layout, LACPY_ENUM, "", lacpy_layouts),
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

static int prepare(lacpy_plan *self, long long m)
{
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_plan_create(self->device->device, ((lacpy_weight *)self->weight)->weight, m, &self->options, &self->plan);
    if (status == LAC_STATUS_OK) status = lac_plan_get_info(self->plan, &self->info);
    Py_END_ALLOW_THREADS;
    lac_plan_options *o = &self->options;
    o->kernel = NULL; /* the caller's */
    if (!o->x_dtype) o->x_dtype = ((lacpy_weight *)self->weight)->info.dtype;
    if (!o->y_dtype) o->y_dtype = o->x_dtype;
    if (!o->bias_dtype) o->bias_dtype = o->y_dtype;
    if (!o->c_dtype) o->c_dtype = o->y_dtype;
    return lacpy_check(status);
}

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *weight, *device = NULL, *rest = NULL;
    long long m;
    if (!PyArg_ParseTuple(args, "O!L|O:Plan", lacpy.weight, &weight, &m, &device)) return NULL;
    lacpy_plan *self = PyObject_New(lacpy_plan, type);
    if (!self) return NULL;
    memset((char *)self + offsetof(lacpy_plan, plan), 0, sizeof *self - offsetof(lacpy_plan, plan));
    self->info.size = sizeof self->info;
    self->options.size = sizeof self->options;
    int result = lacpy_fields_parse(lacpy_plan_fields, &self->options, "Plan", kwargs, &rest);
    PyObject *named = result ? NULL : lacpy_take(rest, "device");
    if (named && !device) device = named;
    if (!result) result = lacpy_none_left("Plan", rest);
    if (!result) self->device = device_or_cpu(device);
    self->weight = Py_NewRef(weight);
    if (!result) result = self->device ? prepare(self, m) : -1;
    Py_XDECREF(named);
    Py_XDECREF(rest);
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
    Py_XDECREF((PyObject *)self->device);
    Py_XDECREF(self->weight);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* ---- calling it */

/* A slot's number, marked busy; -1 with an exception. */
static int take_slot(lacpy_plan *self, void *stream)
{
    for (int i = 0; i < self->slot_count; i++) {
        if (self->slots[i].busy || self->slots[i].stream != stream) continue;
        self->slots[i].busy = true;
        return i;
    }
    slot *longer = PyMem_Realloc(self->slots, (size_t)(self->slot_count + 1) * sizeof *longer);
    if (!longer) return (PyErr_NoMemory(), -1);
    self->slots = longer;
    void *block = NULL;
    lac_status status = lac_device_allocate(self->device->device, self->info.workspace_bytes, &block);
    if (status != LAC_STATUS_OK) return (lacpy_raise(status), -1);
    self->slots[self->slot_count] = (slot){.block = block, .stream = stream, .busy = true};
    return self->slot_count++;
}

/* 1 when it is in the plan's device's memory, else 0 with an exception. */
static int is_reachable(const lacpy_plan *self, const lacpy_array *array, const char *name)
{
    if (array->on_gpu == (self->device->gpu >= 0) && (!array->on_gpu || array->gpu == self->device->gpu)) return 1;
    if (array->on_gpu)
        PyErr_Format(PyExc_ValueError, "%s is in the memory of GPU %d; the plan is on '%s'", name, array->gpu,
                     self->device->info.name);
    else
        PyErr_Format(PyExc_ValueError, "%s is in the host's memory; the plan is on '%s'", name, self->device->info.name);
    return 0;
}

/* [rows, cols], or [cols] where there is one row; a vector is looked at as such a matrix. */
static int look_at_operand(const lacpy_plan *self, PyObject *object, const char *name, lacpy_access access, void *stream,
                           int64_t cols, lac_dtype dtype, lac_layout layout, lacpy_array *array, int64_t *ld)
{
    const int64_t rows = self->info.m;
    if (lacpy_array_get(object, name, access, stream, array) < 0) return -1;
    if (array->is_vector && rows == 1) {
        array->dimensions = 2;
        array->shape[1] = array->shape[0], array->stride[1] = array->stride[0];
        array->shape[0] = 1, array->stride[0] = array->shape[1];
        if (layout == LAC_LAYOUT_FEATURE_MAJOR)
            array->stride[0] = 1; /* a line of X[k][1] has one element: its stride is the leading dimension */
    }
    int result = is_reachable(self, array, name) ? 0 : -1;
    if (!result && (array->dimensions != 2 || array->shape[0] != rows || array->shape[1] != cols)) {
        PyErr_Format(PyExc_ValueError, "%s has %d dimensions, (%lld, %lld); it must be (%lld, %lld)", name, array->dimensions,
                     (long long)array->shape[0], (long long)(array->dimensions > 1 ? array->shape[1] : 1), (long long)rows,
                     (long long)cols);
        result = -1;
    }
    if (!result && array->dtype != dtype) {
        PyErr_Format(PyExc_TypeError, "%s is of dtype %s; the plan takes %s", name, lac_dtype_name(array->dtype),
                     lac_dtype_name(dtype));
        result = -1;
    }
    if (!result) result = lacpy_array_leading(array, name, layout, ld);
    if (result < 0) lacpy_array_release(array);
    return result;
}

static int look_at_bias(const lacpy_plan *self, PyObject *object, void *stream, lacpy_array *array)
{
    if (lacpy_array_get(object, "bias", LACPY_READ, stream, array) < 0) return -1;
    bool fits = array->dimensions == 1 && array->shape[0] == self->info.n && (array->stride[0] == 1 || self->info.n <= 1);
    if (!fits)
        PyErr_Format(PyExc_ValueError, "bias must be a vector of %lld without gaps", (long long)self->info.n);
    else if (array->dtype != self->options.bias_dtype)
        PyErr_Format(PyExc_TypeError, "bias is of dtype %s; the plan takes %s", lac_dtype_name(array->dtype),
                     lac_dtype_name(self->options.bias_dtype));
    else if (is_reachable(self, array, "bias"))
        return 0;
    lacpy_array_release(array);
    return -1;
}

/* A stream as a pointer: None, a number, PyTorch's or CuPy's object. */
static int stream_of(PyObject *object, void **out)
{
    *out = NULL;
    if (!object || object == Py_None) return 0;
    PyObject *number = PyLong_Check(object) ? Py_NewRef(object) : PyObject_GetAttrString(object, "cuda_stream");
    if (!number) {
        PyErr_Clear();
        number = PyObject_GetAttrString(object, "ptr");
    }
    if (!number) {
        PyErr_Format(PyExc_TypeError, "stream is %R; it must be None, a number, or an object with cuda_stream or ptr", object);
        return -1;
    }
    *out = PyLong_AsVoidPtr(number);
    Py_DECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

/* The operands of a call, looked at. */
typedef struct call {
    lac_execute_args args;
    float alpha, beta;
    lacpy_array x, y, bias, c;
} call;

static void forget(call *it)
{
    lacpy_array_release(&it->x);
    lacpy_array_release(&it->y);
    lacpy_array_release(&it->bias);
    lacpy_array_release(&it->c);
}

static int scalar_of(PyObject *object, const char *name, float *value, const float **out)
{
    if (!object || object == Py_None) return 0;
    double number = PyFloat_AsDouble(object);
    if (number == -1.0 && PyErr_Occurred()) {
        PyErr_Format(PyExc_TypeError, "%s is %R; it must be a number", name, object);
        return -1;
    }
    *value = (float)number;
    *out = value;
    return 0;
}

static int look_at_inputs(const lacpy_plan *self, PyObject *x, PyObject *bias, PyObject *c, PyObject *alpha, PyObject *beta,
                          PyObject *stream, call *it)
{
    const lac_plan_options *o = &self->options;
    *it = (call){.args = {.size = sizeof it->args}};
    if (stream_of(stream, &it->args.stream) < 0 || scalar_of(alpha, "alpha", &it->alpha, &it->args.alpha) < 0 ||
        scalar_of(beta, "beta", &it->beta, &it->args.beta) < 0 ||
        look_at_operand(self, x, "x", LACPY_READ, it->args.stream, self->info.k, o->x_dtype, o->x_layout, &it->x,
                        &it->args.ldx) < 0)
        return -1;
    it->args.x = it->x.data;
    if (bias && bias != Py_None) {
        if (look_at_bias(self, bias, it->args.stream, &it->bias) < 0) return -1;
        it->args.bias = it->bias.data;
    }
    if (c && c != Py_None) {
        if (look_at_operand(self, c, "c", LACPY_READ, it->args.stream, self->info.n, o->c_dtype, o->y_layout, &it->c,
                            &it->args.ldc) < 0)
            return -1;
        it->args.c = it->c.data;
    }
    return 0;
}

static int execute(lacpy_plan *self, lac_execute_args *args)
{
    int taken = -1;
    if (self->info.workspace_bytes && !args->workspace) {
        if ((taken = take_slot(self, args->stream)) < 0) return -1;
        args->workspace = self->slots[taken].block;
        args->workspace_bytes = self->info.workspace_bytes;
    }
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_plan_execute(self->plan, args);
    Py_END_ALLOW_THREADS;
    if (taken >= 0) self->slots[taken].busy = false;
    return status == LAC_STATUS_OK ? 0 : (lacpy_raise(status), -1);
}

static PyObject *run(PyObject *object, PyObject *positional, PyObject *kwargs)
{
    static char *names[] = {"x", "out", "bias", "c", "alpha", "beta", "stream", NULL};
    lacpy_plan *self = (lacpy_plan *)object;
    PyObject *x, *out = NULL, *bias = NULL, *c = NULL, *alpha = NULL, *beta = NULL, *stream = NULL, *result = NULL;
    if (!PyArg_ParseTupleAndKeywords(positional, kwargs, "O|O$OOOOO:Plan", names, &x, &out, &bias, &c, &alpha, &beta, &stream))
        return NULL;
    call it;
    if (look_at_inputs(self, x, bias, c, alpha, beta, stream, &it) < 0) goto done;
    const lac_plan_options *o = &self->options;
    if (out && out != Py_None) {
        result = Py_NewRef(out);
    } else {
        const int64_t shape[2] = {self->info.m, self->info.n};
        bool is_vector = it.x.is_vector;
        result = lacpy_array_new(x, is_vector ? 1 : 2, is_vector ? shape + 1 : shape, o->y_dtype, o->y_layout);
        if (!result) goto done;
    }
    if (look_at_operand(self, result, "out", LACPY_WRITE, it.args.stream, self->info.n, o->y_dtype, o->y_layout, &it.y,
                        &it.args.ldy) < 0) {
        Py_CLEAR(result);
        goto done;
    }
    it.args.y = it.y.data;
    if (execute(self, &it.args) < 0) Py_CLEAR(result);
done:
    forget(&it);
    return result;
}

static PyObject *execute_pointers(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    lacpy_plan *self = (lacpy_plan *)object;
    if (count != 10) {
        PyErr_Format(PyExc_TypeError, "execute_pointers() takes 10 numbers, not %zd", count);
        return NULL;
    }
    long long ld[10] = {0};
    void *pointer[10] = {NULL};
    for (Py_ssize_t i = 0; i < count; i++) { /* x, ldx, y, ldy, bias, c, ldc, stream, workspace, workspace_bytes */
        bool is_number = i == 1 || i == 3 || i == 6 || i == 9;
        if (is_number)
            ld[i] = PyLong_AsLongLong(args[i]);
        else
            pointer[i] = PyLong_AsVoidPtr(args[i]);
        if (PyErr_Occurred()) return NULL;
    }
    lac_execute_args call = {.size = sizeof call,
                             .x = pointer[0],
                             .ldx = ld[1],
                             .y = pointer[2],
                             .ldy = ld[3],
                             .bias = pointer[4],
                             .c = pointer[5],
                             .ldc = ld[6],
                             .stream = pointer[7],
                             .workspace = pointer[8],
                             .workspace_bytes = (size_t)ld[9]};
    if (execute(self, &call) < 0) return NULL;
    Py_RETURN_NONE;
}

/* ---- the oracle */

static PyObject *reference(PyObject *object, PyObject *positional, PyObject *kwargs)
{
    static char *names[] = {"x", "bias", "c", "alpha", "beta", NULL};
    lacpy_plan *self = (lacpy_plan *)object;
    PyObject *x, *bias = NULL, *c = NULL, *alpha = NULL, *beta = NULL, *y = NULL, *bound = NULL, *pair = NULL;
    if (!PyArg_ParseTupleAndKeywords(positional, kwargs, "O|$OOOO:reference", names, &x, &bias, &c, &alpha, &beta)) return NULL;
    call it = {.args = {.size = sizeof it.args}};
    lacpy_array first = {0}, second = {0};
    const int64_t shape[2] = {self->info.m, self->info.n};
    if (self->device->gpu >= 0) {
        PyErr_Format(PyExc_ValueError, "the oracle reads the host's memory; the plan is on '%s': make one on 'cpu'",
                     self->device->info.name);
        return NULL;
    }
    if (look_at_inputs(self, x, bias, c, alpha, beta, NULL, &it) == 0 &&
        (y = PyObject_CallFunction(lacpy.empty, "O(LL)si", Py_None, (long long)shape[0], (long long)shape[1], "f64", 0)) &&
        (bound = PyObject_CallFunction(lacpy.empty, "O(LL)si", Py_None, (long long)shape[0], (long long)shape[1], "f64", 0)) &&
        lacpy_array_get(y, "y", LACPY_WRITE, NULL, &first) == 0 &&
        lacpy_array_get(bound, "bound", LACPY_WRITE, NULL, &second) == 0) {
        memset(first.data, 0,
               (size_t)(shape[0] * shape[1]) * sizeof(double)); /* outputs that a shard does not own are left alone */
        memset(second.data, 0, (size_t)(shape[0] * shape[1]) * sizeof(double));
        lac_status status;
        Py_BEGIN_ALLOW_THREADS;
        status = lac_plan_reference(self->plan, &it.args, first.data, second.data, shape[1]);
        Py_END_ALLOW_THREADS;
        pair = status == LAC_STATUS_OK ? PyTuple_Pack(2, y, bound) : lacpy_raise(status);
    }
    lacpy_array_release(&first);
    lacpy_array_release(&second);
    forget(&it);
    Py_XDECREF(y);
    Py_XDECREF(bound);
    return pair;
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
    return Py_NewRef(((lacpy_plan *)self)->weight);
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
    {"reference", LACPY_CALL(reference, LACPY_KEYWORDS,
                             "reference(x, *, bias=None, c=None, alpha=1, beta=1)\n--\n\n(y, bound): the same in double by "
                             "obvious loops, and how far a call's result may "
                             "be from it, element by element.")},
    {"execute_pointers", (PyCFunction)(void (*)(void))execute_pointers, METH_FASTCALL,
     "execute_pointers(x, ldx, y, ldy, bias, c, ldc, stream, workspace, workspace_bytes)\n--\n\nA call by addresses, for those "
     "who have checked what lies "
     "there; 0 where there is none. Nothing is checked that Lacuna cannot see."},
    {NULL, NULL, 0, NULL}};

static const PyGetSetDef more_attributes[] = {{"device", get_device, NULL, "the Device that it runs on", NULL},
                                              {"weight", get_weight, NULL, "the Weight that it multiplies by", NULL},
                                              {NULL, NULL, NULL, NULL, NULL}};

int lacpy_plan_init(PyObject *module)
{
    level_record = lacpy_record_type("lacuna.Level", "A resource that a call uses, and what it asks of it.", level_fields);
    PyGetSetDef *of_options = lacpy_attributes(resolved_fields, get_option, more_attributes);
    PyGetSetDef *attributes = of_options ? lacpy_attributes(info_fields, get_info, of_options) : NULL;
    if (!level_record || !attributes) return -1;
    PyType_Slot slots[] = {{Py_tp_doc, "Plan(weight, m, device='cpu', *, x_layout='token', y_layout='token', x_dtype=None, "
                                       "y_dtype=None, bias_dtype=None, c_dtype=None, "
                                       "precision='default', bias=False, activation='none', residual=False, kernel=None, "
                                       "threads=0, measure=False, predict_only=False, no_dense=False, "
                                       "no_timing=False)\n--\n\nOne chosen, prepared kernel for Y = act(alpha X W^T + bias) + "
                                       "beta C with m tokens. Call it: plan(x, out=None, *, "
                                       "bias=None, c=None, alpha=1, beta=1, stream=None)."},
                           {Py_tp_new, make},
                           {Py_tp_dealloc, destroy},
                           {Py_tp_call, run},
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

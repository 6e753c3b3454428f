/* plan_call.c - calls of a Plan: looks at the operands, finds scratch memory, and runs the kernel or the oracle. */
#include <stdio.h>
#include <string.h>

#include "plan.h"

/* ---- scratch memory */

/* As many streams as a plan keeps memory for: one more, and the device is waited for. */
enum { MOST_SLOTS = 16 };

static int find_slot(const lacpy_plan *self, void *stream, bool any)
{
    for (int i = 0; i < self->slot_count; i++)
        if (!self->slots[i].busy && (any || self->slots[i].stream == stream)) return i;
    return -1;
}

static int add_slot(lacpy_plan *self)
{
    void *block = NULL;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS; /* a GPU may wait for what it is doing */
    status = lac_device_allocate(self->device->device, self->info.workspace_bytes, &block);
    Py_END_ALLOW_THREADS;
    if (status != LAC_STATUS_OK) return (lacpy_raise(status), -1);
    lacpy_slot *longer = PyMem_Realloc(self->slots, (size_t)(self->slot_count + 1) * sizeof *longer);
    if (!longer) {
        lac_device_release(self->device->device, block);
        return (PyErr_NoMemory(), -1);
    }
    self->slots = longer;
    self->slots[self->slot_count] = (lacpy_slot){.block = block};
    return self->slot_count++;
}

/* A slot's number, marked busy; -1 with an exception. */
static int take_slot(lacpy_plan *self, void *stream)
{
    int i = find_slot(self, stream, false);
    if (i < 0 && self->slot_count >= MOST_SLOTS && (i = find_slot(self, stream, true)) >= 0) {
        self->slots[i].busy = true; /* another stream's work may use it still */
        lac_status status;
        Py_BEGIN_ALLOW_THREADS;
        status = lac_device_synchronize(self->device->device);
        Py_END_ALLOW_THREADS;
        self->slots[i].busy = false;
        if (status != LAC_STATUS_OK) return (lacpy_raise(status), -1);
    }
    if (i < 0) i = add_slot(self);
    if (i < 0) return -1;
    self->slots[i].stream = stream;
    self->slots[i].busy = true;
    return i;
}

/* ---- operands */

/* 1 when it is in the plan's device's memory, else 0 with an exception. */
static int is_reachable(const lacpy_plan *self, const lacpy_array *array, const char *name)
{
    if (array->on_gpu == (self->device->gpu >= 0) && (!array->on_gpu || array->gpu == self->device->gpu)) return 1;
    if (array->on_gpu)
        PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT], "%s is in the memory of GPU %d; the plan is on '%s'", name,
                     array->gpu, self->device->info.name);
    else
        PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT], "%s is in the host's memory; the plan is on '%s'", name,
                     self->device->info.name);
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
        char wanted[64];
        snprintf(wanted, sizeof wanted, "(%lld, %lld)", (long long)rows, (long long)cols);
        lacpy_raise_shape(array, name, wanted);
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
    char wanted[64];
    snprintf(wanted, sizeof wanted, "(%lld,), without gaps", (long long)self->info.n);
    if (!fits)
        lacpy_raise_shape(array, "bias", wanted);
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
    PyObject *number =
        PyIndex_Check(object) && !PyBool_Check(object) ? PyNumber_Index(object) : lacpy_get(object, "cuda_stream");
    if (!number && lacpy_is_refusal()) {
        PyErr_Clear();
        number = lacpy_get(object, "ptr");
    }
    if (!number) {
        if (lacpy_is_refusal())
            PyErr_Format(PyExc_TypeError, "stream is %R; it must be None, a number, or an object with cuda_stream or ptr",
                         object);
        return -1;
    }
    int64_t address;
    int result = lacpy_integer("stream", number, 0, INT64_MAX, &address);
    Py_DECREF(number);
    if (!result) *out = (void *)(uintptr_t)address;
    return result;
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
        if (lacpy_is_refusal()) PyErr_Format(PyExc_TypeError, "%s is %R; it must be a number", name, object);
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

/* Kernels read and write in any order. C may be Y itself, since each of its elements is read before that of Y is written. */
static int check_overlaps(const call *it)
{
    bool is_y = it->c.data == it->y.data && it->c.dtype == it->y.dtype && it->args.ldc == it->args.ldy;
    const struct {
        const char *name;
        const lacpy_array *array;
        bool is_there;
    } inputs[] = {{"x", &it->x, true}, {"bias", &it->bias, it->args.bias}, {"c", &it->c, it->args.c && !is_y}};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        if (!inputs[i].is_there || !lacpy_array_meets(inputs[i].array, &it->y)) continue;
        PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT], "out shares memory with %s%s", inputs[i].name,
                     inputs[i].name[0] == 'c' ? ", and is not that very array" : "");
        return -1;
    }
    return 0;
}

/* `out`, or a new array of x's kind: a vector where x is one. */
static PyObject *find_output(const lacpy_plan *self, PyObject *x, bool is_vector, PyObject *out)
{
    if (out && out != Py_None) return Py_NewRef(out);
    const int64_t shape[2] = {self->info.m, self->info.n};
    return lacpy_array_new(x, is_vector ? 1 : 2, is_vector ? shape + 1 : shape, self->options.y_dtype, self->options.y_layout,
                           (PyObject *)self->device);
}

/* Where nothing is said, a GPU's plan runs where PyTorch goes on, if x is a tensor of its. */
static PyObject *find_stream(const lacpy_plan *self, PyObject *x, PyObject *stream)
{
    if (self->device->gpu < 0 || (stream && stream != Py_None)) return Py_NewRef(stream ? stream : Py_None);
    return PyObject_CallFunctionObjArgs(lacpy.stream, x, NULL);
}

PyObject *lacpy_plan_run(PyObject *object, PyObject *positional, PyObject *kwargs)
{
    static char *names[] = {"x", "out", "bias", "c", "alpha", "beta", "stream", NULL};
    lacpy_plan *self = (lacpy_plan *)object;
    PyObject *x, *out = NULL, *bias = NULL, *c = NULL, *alpha = NULL, *beta = NULL, *stream = NULL, *result = NULL;
    if (!PyArg_ParseTupleAndKeywords(positional, kwargs, "O|O$OOOOO:Plan", names, &x, &out, &bias, &c, &alpha, &beta,
                                     &stream) ||
        !(stream = find_stream(self, x, stream)))
        return NULL;
    call it;
    int done = look_at_inputs(self, x, bias, c, alpha, beta, stream, &it);
    if (!done && !(result = find_output(self, x, it.x.is_vector, out))) done = -1;
    if (!done)
        done = look_at_operand(self, result, "out", LACPY_WRITE, it.args.stream, self->info.n, self->options.y_dtype,
                               self->options.y_layout, &it.y, &it.args.ldy);
    if (!done) it.args.y = it.y.data;
    if (!done) done = check_overlaps(&it);
    if (!done) done = execute(self, &it.args);
    if (!done && PyObject_TypeCheck(result, lacpy.device_array)) {
        lacpy_device_array *written = (lacpy_device_array *)result;
        (written->base ? (lacpy_device_array *)written->base : written)->stream = it.args.stream;
    }
    if (done < 0) Py_CLEAR(result);
    forget(&it);
    Py_DECREF(stream);
    return result;
}

/* An address or a size. */
static int number_of(const char *name, PyObject *object, uint64_t most, uint64_t *out)
{
    *out = PyLong_AsUnsignedLongLong(object);
    if (!PyErr_Occurred() && *out <= most) return 0;
    PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT], "%s is %R; it must be an int from 0 to %llu", name, object,
                 (unsigned long long)most);
    return -1;
}

PyObject *lacpy_plan_execute_pointers(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    static const char *const names[] = {"x", "ldx", "y", "ldy", "bias", "c", "ldc", "stream", "workspace", "workspace_bytes"};
    enum { COUNT = sizeof names / sizeof *names };
    lacpy_plan *self = (lacpy_plan *)object;
    uint64_t value[COUNT];
    if (count != COUNT) {
        PyErr_Format(PyExc_TypeError, "execute_pointers() takes %d numbers, not %zd", (int)COUNT, count);
        return NULL;
    }
    for (int i = 0; i < COUNT; i++)
        if (number_of(names[i], args[i], names[i][0] == 'l' ? INT64_MAX : UINTPTR_MAX, &value[i]) < 0) return NULL;
    lac_execute_args call = {.size = sizeof call,
                             .x = (void *)(uintptr_t)value[0],
                             .ldx = (int64_t)value[1],
                             .y = (void *)(uintptr_t)value[2],
                             .ldy = (int64_t)value[3],
                             .bias = (void *)(uintptr_t)value[4],
                             .c = (void *)(uintptr_t)value[5],
                             .ldc = (int64_t)value[6],
                             .stream = (void *)(uintptr_t)value[7],
                             .workspace = (void *)(uintptr_t)value[8],
                             .workspace_bytes = (size_t)value[9]};
    return execute(self, &call) < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- the oracle */

PyObject *lacpy_plan_reference(PyObject *object, PyObject *positional, PyObject *kwargs)
{
    static char *names[] = {"x", "bias", "c", "alpha", "beta", NULL};
    lacpy_plan *self = (lacpy_plan *)object;
    PyObject *x, *bias = NULL, *c = NULL, *alpha = NULL, *beta = NULL, *y = NULL, *bound = NULL, *pair = NULL;
    if (!PyArg_ParseTupleAndKeywords(positional, kwargs, "O|$OOOO:reference", names, &x, &bias, &c, &alpha, &beta)) return NULL;
    call it = {.args = {.size = sizeof it.args}};
    lacpy_array first = {0}, second = {0};
    const int64_t shape[2] = {self->info.m, self->info.n};
    if (self->device->gpu >= 0) {
        PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT],
                     "the oracle reads the host's memory; the plan is on '%s': make one on 'cpu'", self->device->info.name);
        return NULL;
    }
    if (look_at_inputs(self, x, bias, c, alpha, beta, NULL, &it) == 0 &&
        (y = PyObject_CallFunction(lacpy.empty, "O(LL)s", Py_None, (long long)shape[0], (long long)shape[1], "f64")) &&
        (bound = PyObject_CallFunction(lacpy.empty, "O(LL)s", Py_None, (long long)shape[0], (long long)shape[1], "f64")) &&
        lacpy_array_get(y, "y", LACPY_WRITE, NULL, &first) == 0 &&
        lacpy_array_get(bound, "bound", LACPY_WRITE, NULL, &second) == 0) {
        memset(first.data, 0,
               (size_t)(shape[0] * shape[1]) * sizeof(double)); /* outputs that a shard does not own are left alone */
        memset(second.data, 0, (size_t)(shape[0] * shape[1]) * sizeof(double));
        lac_status status;
        Py_BEGIN_ALLOW_THREADS;
        status = lac_plan_reference(self->plan, &it.args, first.data, second.data, shape[1]);
        Py_END_ALLOW_THREADS;
        pair = lacpy_check(status) < 0 ? NULL : PyTuple_Pack(2, y, bound);
    }
    lacpy_array_release(&first);
    lacpy_array_release(&second);
    forget(&it);
    Py_XDECREF(y);
    Py_XDECREF(bound);
    return pair;
}

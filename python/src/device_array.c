/* device_array.c - DeviceArray: an array in a device's memory, for those who have no PyTorch or CuPy to make one. Others take it by DLPack, without a copy. */
#include <string.h>

#include "dlpack.h"
#include "lacpy.h"

/* "f32" and its like, with the bytes that so many elements take; -1 with an exception when that is too much. */
static int count_bytes(lacpy_device_array *self)
{
    uint64_t bytes = lac_dtype_size(self->dtype);
    for (int i = 0; i < self->dimensions; i++) {
        if (self->shape[i] < 0) {
            PyErr_Format(PyExc_ValueError, "shape has the size %lld; it must not be negative", (long long)self->shape[i]);
            return -1;
        }
        if (self->shape[i] && bytes > UINT64_MAX / 2 / (uint64_t)self->shape[i]) {
            PyErr_SetString(PyExc_ValueError, "shape has more elements than can be counted");
            return -1;
        }
        bytes *= (uint64_t)self->shape[i];
    }
    self->bytes = bytes;
    return 0;
}

static int read_shape(lacpy_device_array *self, PyObject *shape)
{
    PyObject *sizes = PyIndex_Check(shape) ? PyTuple_Pack(1, shape) : PySequence_Tuple(shape);
    if (!sizes) return -1;
    Py_ssize_t count = PyTuple_Size(sizes);
    int result = count <= LACPY_MOST_DIMENSIONS ? 0 : -1;
    if (result < 0) PyErr_Format(PyExc_ValueError, "shape has %zd dimensions; it may have %d", count, LACPY_MOST_DIMENSIONS);
    for (Py_ssize_t i = 0; !result && i < count; i++) {
        self->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(sizes, i));
        if (self->shape[i] == -1 && PyErr_Occurred()) result = -1;
    }
    Py_DECREF(sizes);
    self->dimensions = (int)count;
    return result;
}

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"shape", "dtype", "device", NULL};
    PyObject *shape, *dtype, *device = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|O:DeviceArray", names, &shape, &dtype, &device)) return NULL;
    lacpy_device_array *self = PyObject_New(lacpy_device_array, type);
    if (!self) return NULL;
    self->device = NULL;
    self->data = NULL;
    if (read_shape(self, shape) < 0 || lacpy_dtype_parse("dtype", dtype, &self->dtype) < 0 || count_bytes(self) < 0 ||
        !(self->device = lacpy_device_of(device))) {
        Py_DECREF(self);
        return NULL;
    }
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_device_allocate(self->device->device, self->bytes, &self->data);
    Py_END_ALLOW_THREADS;
    if (lacpy_check(status) < 0) Py_CLEAR(self);
    return (PyObject *)self;
}

static void destroy(PyObject *object)
{
    lacpy_device_array *self = (lacpy_device_array *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->device) lac_device_release(self->device->device, self->data);
    Py_XDECREF((PyObject *)self->device);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* The host's array, whose shape and dtype must be ours, without gaps. */
static int host_array(const lacpy_device_array *self, PyObject *object, lacpy_access access, lacpy_array *out)
{
    if (lacpy_array_get(object, "array", access, NULL, out) < 0) return -1;
    bool same = out->dimensions == self->dimensions && out->dtype == self->dtype && !out->on_gpu;
    int64_t next = 1;
    for (int i = self->dimensions - 1; same && i >= 0; i--) {
        same = out->shape[i] == self->shape[i] && (out->shape[i] <= 1 || out->stride[i] == next);
        next *= self->shape[i];
    }
    if (same) return 0;
    lacpy_array_release(out);
    PyErr_Format(PyExc_ValueError,
                 "array must lie in the host's memory without gaps, with the shape and dtype (%s) of this DeviceArray",
                 lac_dtype_name(self->dtype));
    return -1;
}

static PyObject *copy_from(PyObject *object, PyObject *array)
{
    lacpy_device_array *self = (lacpy_device_array *)object;
    lacpy_array host;
    if (host_array(self, array, LACPY_READ, &host) < 0) return NULL;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_device_upload(self->device->device, self->data, host.data, self->bytes);
    Py_END_ALLOW_THREADS;
    lacpy_array_release(&host);
    if (lacpy_check(status) < 0) return NULL;
    return Py_NewRef(object);
}

static PyObject *to_numpy(PyObject *object, PyObject *unused)
{
    (void)unused;
    lacpy_device_array *self = (lacpy_device_array *)object;
    PyObject *array = lacpy_array_new(NULL, self->dimensions, self->shape, self->dtype, LAC_LAYOUT_ROW_MAJOR);
    lacpy_array host;
    if (!array || host_array(self, array, LACPY_WRITE, &host) < 0) {
        Py_XDECREF(array);
        return NULL;
    }
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_device_download(self->device->device, host.data, self->data, self->bytes);
    Py_END_ALLOW_THREADS;
    lacpy_array_release(&host);
    if (lacpy_check(status) < 0) Py_CLEAR(array);
    return array;
}

/* ---- DLPack */

typedef struct lent {
    lacpy_dl_managed managed;
    int64_t shape[LACPY_MOST_DIMENSIONS];
} lent;

/* Called from any thread, by whoever took the array. */
static void give_back(lacpy_dl_managed *managed)
{
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF((PyObject *)managed->owner);
    PyMem_Free(managed);
    PyGILState_Release(state);
}

static void destroy_capsule(PyObject *capsule)
{
    if (!PyCapsule_IsValid(capsule, LACPY_DL_NAME)) return; /* taken: theirs to give back */
    lacpy_dl_managed *managed = PyCapsule_GetPointer(capsule, LACPY_DL_NAME);
    managed->deleter(managed);
}

static PyObject *dlpack(PyObject *object, PyObject *args, PyObject *kwargs)
{
    lacpy_device_array *self = (lacpy_device_array *)object;
    (void)args, (void)kwargs; /* copies into it are done when they return, so there is nothing to wait for on their stream */
    lent *it = PyMem_Calloc(1, sizeof *it);
    if (!it) return PyErr_NoMemory();
    memcpy(it->shape, self->shape, sizeof it->shape);
    it->managed = (lacpy_dl_managed){.tensor = {.data = self->data,
                                                .device_type = self->device->gpu < 0 ? LACPY_DL_CPU : LACPY_DL_CUDA,
                                                .device_number = self->device->gpu < 0 ? 0 : self->device->gpu,
                                                .dimensions = self->dimensions,
                                                .code = self->dtype == LAC_DTYPE_BF16 ? LACPY_DL_BFLOAT : LACPY_DL_FLOAT,
                                                .bits = (uint8_t)(8 * lac_dtype_size(self->dtype)),
                                                .lanes = 1,
                                                .shape = it->shape},
                                     .owner = object,
                                     .deleter = give_back};
    PyObject *capsule = PyCapsule_New(&it->managed, LACPY_DL_NAME, destroy_capsule);
    if (!capsule) {
        PyMem_Free(it);
        return NULL;
    }
    Py_INCREF(object);
    return capsule;
}

static PyObject *dlpack_device(PyObject *object, PyObject *unused)
{
    (void)unused;
    int gpu = ((lacpy_device_array *)object)->device->gpu;
    return Py_BuildValue("(ii)", gpu < 0 ? LACPY_DL_CPU : LACPY_DL_CUDA, gpu < 0 ? 0 : gpu);
}

/* ---- attributes */

static PyObject *get_shape(PyObject *object, void *unused)
{
    (void)unused;
    lacpy_device_array *self = (lacpy_device_array *)object;
    PyObject *shape = PyTuple_New(self->dimensions);
    for (int i = 0; shape && i < self->dimensions; i++) {
        PyObject *size = PyLong_FromLongLong(self->shape[i]);
        if (!size || PyTuple_SetItem(shape, i, size) < 0) Py_CLEAR(shape);
    }
    return shape;
}

static PyObject *get_dtype(PyObject *object, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(lac_dtype_name(((lacpy_device_array *)object)->dtype));
}

static PyObject *get_device(PyObject *object, void *unused)
{
    (void)unused;
    return Py_NewRef((PyObject *)((lacpy_device_array *)object)->device);
}

static PyObject *get_pointer(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromVoidPtr(((lacpy_device_array *)object)->data);
}

static PyObject *represent(PyObject *object)
{
    lacpy_device_array *self = (lacpy_device_array *)object;
    PyObject *shape = get_shape(object, NULL);
    PyObject *text = shape ? PyUnicode_FromFormat("<lacuna.DeviceArray %R %s on %s>", shape, lac_dtype_name(self->dtype),
                                                  self->device->info.name)
                           : NULL;
    Py_XDECREF(shape);
    return text;
}

static PyMethodDef methods[] = {
    {"copy_from", copy_from, METH_O,
     "copy_from(array)\n--\n\nCopies an array of the host's, of the same shape and dtype and without gaps, into this one, "
     "which it returns."},
    {"numpy", to_numpy, METH_NOARGS,
     "numpy()\n--\n\nA copy as a numpy array, after all that was put on the device's default stream."},
    {"__dlpack__", LACPY_CALL(dlpack, LACPY_KEYWORDS, NULL)},
    {"__dlpack_device__", dlpack_device, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef attributes[] = {{"shape", get_shape, NULL, "its sizes; the last dimension is the fastest", NULL},
                                   {"dtype", get_dtype, NULL, "'f32', 'f16', 'bf16' or 'f64'", NULL},
                                   {"device", get_device, NULL, "the Device in whose memory it lies", NULL},
                                   {"pointer", get_pointer, NULL, "its address there", NULL},
                                   {NULL, NULL, NULL, NULL, NULL}};

int lacpy_device_array_init(PyObject *module)
{
    PyType_Slot slots[] = {{Py_tp_doc, "DeviceArray(shape, dtype, device='auto')\n--\n\nAn array in a device's memory, not "
                                       "cleared. PyTorch, CuPy and others take "
                                       "it without a copy (from_dlpack)."},
                           {Py_tp_new, make},
                           {Py_tp_dealloc, destroy},
                           {Py_tp_repr, represent},
                           {Py_tp_methods, methods},
                           {Py_tp_getset, attributes},
                           {0, NULL}};
    PyType_Spec spec = {.name = "lacuna.DeviceArray",
                        .basicsize = sizeof(lacpy_device_array),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                        .slots = slots};
    return (lacpy.device_array = lacpy_type_add(module, &spec)) ? 0 : -1;
}

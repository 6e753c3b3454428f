/* device_array.c - DeviceArray: an array in a device's memory, for those who have no PyTorch or CuPy to make one. Others take it by DLPack, without a copy. */
#include <string.h>

#include "dlpack.h"
#include "lacpy.h"

/* Strides and bytes, from dtype and shape; -1 with an exception when that is too much. A size of zero counts as one here, so that whatever passes can be
 * counted in any order. */
static int lay_out(lacpy_device_array *self, PyObject *shape)
{
    int64_t elements = 1, bytes;
    bool is_empty = false;
    for (int i = self->dimensions - 1; i >= 0; i--) {
        self->stride[i] = elements;
        is_empty = is_empty || self->shape[i] == 0;
        if (__builtin_mul_overflow(elements, self->shape[i] ? self->shape[i] : 1, &elements) ||
            __builtin_mul_overflow(elements, (int64_t)lac_dtype_size(self->dtype), &bytes)) {
            PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT], "shape is %R, more elements than memory has", shape);
            return -1;
        }
    }
    self->bytes = is_empty ? 0 : (uint64_t)elements * lac_dtype_size(self->dtype);
    return 0;
}

static int read_shape(lacpy_device_array *self, PyObject *shape)
{
    return lacpy_shape_parse(shape, LACPY_MOST_DIMENSIONS, self->shape, &self->dimensions) < 0 ? -1 : lay_out(self, shape);
}

static lacpy_device_array *begin(PyTypeObject *type)
{
    lacpy_device_array *self = PyObject_New(lacpy_device_array, type);
    if (self)
        memset((char *)self + offsetof(lacpy_device_array, device), 0, sizeof *self - offsetof(lacpy_device_array, device));
    return self;
}

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"shape", "dtype", "device", NULL};
    PyObject *values[3];
    if (lacpy_arguments("DeviceArray", args, kwargs, names, 2, values, NULL) < 0) return NULL;
    lacpy_device_array *self = begin(type);
    if (!self) return NULL;
    if (lacpy_dtype_parse("dtype", values[1], &self->dtype) < 0 || read_shape(self, values[0]) < 0 ||
        !(self->device = lacpy_device_of(values[2]))) {
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
    if (self->device && !self->base) {
        Py_BEGIN_ALLOW_THREADS; /* on a GPU this waits for the work that uses it */
        lac_device_release(self->device->device, self->data);
        Py_END_ALLOW_THREADS;
    }
    Py_XDECREF((PyObject *)self->device);
    Py_XDECREF(self->base);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* The transpose, which shares the memory: how a feature-major matrix is made, as the transpose of a contiguous one. */
static PyObject *get_transpose(PyObject *object, void *unused)
{
    (void)unused;
    lacpy_device_array *self = (lacpy_device_array *)object;
    if (self->dimensions > 2) {
        PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT], "the array has %d dimensions; T is for a matrix",
                     self->dimensions);
        return NULL;
    }
    lacpy_device_array *view = begin(Py_TYPE(object));
    if (!view) return NULL;
    view->device = (lacpy_device *)Py_NewRef((PyObject *)self->device);
    view->base = Py_NewRef(self->base ? self->base : object);
    view->data = self->data;
    view->dtype = self->dtype;
    view->dimensions = self->dimensions;
    view->bytes = self->bytes;
    view->stream = self->stream;
    for (int i = 0; i < self->dimensions; i++) {
        view->shape[i] = self->shape[self->dimensions - 1 - i];
        view->stride[i] = self->stride[self->dimensions - 1 - i];
    }
    return (PyObject *)view;
}

/* The host's array, whose shape, order and dtype must be ours, without gaps. */
static int host_array(const lacpy_device_array *self, PyObject *object, lacpy_access access, lacpy_array *out)
{
    if (lacpy_array_get(object, "array", access, NULL, out) < 0) return -1;
    bool same = out->dimensions == self->dimensions, straight = true;
    for (int i = 0; same && i < self->dimensions; i++) {
        same = out->shape[i] == self->shape[i];
        straight = straight && (self->bytes == 0 || out->shape[i] <= 1 || out->stride[i] == self->stride[i]);
    }
    if (same && straight && out->dtype == self->dtype && !out->on_gpu) return 0;
    if (out->on_gpu)
        PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT], "array is in the memory of GPU %d; it must be in the host's",
                     out->gpu);
    else if (!same)
        lacpy_raise_shape(out, "array", "the shape of this DeviceArray");
    else if (out->dtype != self->dtype)
        PyErr_Format(PyExc_TypeError, "array is of dtype %s; this DeviceArray is of %s", lac_dtype_name(out->dtype),
                     lac_dtype_name(self->dtype));
    else
        PyErr_SetString(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT],
                        "array has gaps, or another order of its dimensions than this DeviceArray; pass a contiguous copy");
    lacpy_array_release(out);
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
    int checked = lacpy_check(status); /* before code of the array's owner may fail at something else */
    lacpy_array_release(&host);
    return checked < 0 ? NULL : Py_NewRef(object);
}

static PyObject *to_numpy(PyObject *object, PyObject *unused)
{
    (void)unused;
    lacpy_device_array *self = (lacpy_device_array *)object;
    bool is_transposed = self->dimensions == 2 && self->stride[1] != 1;
    PyObject *array = lacpy_array_new(NULL, self->dimensions, self->shape, self->dtype,
                                      is_transposed ? LAC_LAYOUT_FEATURE_MAJOR : LAC_LAYOUT_TOKEN_MAJOR, NULL);
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
    union {
        lacpy_dl_managed plain;
        lacpy_dl_versioned versioned;
    };
    int64_t shape[LACPY_MOST_DIMENSIONS], stride[LACPY_MOST_DIMENSIONS];
} lent;

/* Called from any thread, by whoever took the array; also after the interpreter's end, when there is nobody left to give it back to. */
static void give_back(PyObject *owner, void *block)
{
    if (!Py_IsInitialized()) return;
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(owner);
    PyMem_Free(block);
    PyGILState_Release(state);
}

static void give_back_plain(lacpy_dl_managed *managed) { give_back(managed->owner, managed); }
static void give_back_versioned(lacpy_dl_versioned *managed) { give_back(managed->owner, managed); }

/* Nobody has taken it. */
static void destroy_capsule(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, LACPY_DL_NAME)) give_back_plain(PyCapsule_GetPointer(capsule, LACPY_DL_NAME));
    if (PyCapsule_IsValid(capsule, LACPY_DL_VERSIONED)) give_back_versioned(PyCapsule_GetPointer(capsule, LACPY_DL_VERSIONED));
}

static PyObject *dlpack_device(PyObject *object, PyObject *unused)
{
    (void)unused;
    int gpu = ((lacpy_device_array *)object)->device->gpu;
    return Py_BuildValue("(ii)", gpu < 0 ? LACPY_DL_CPU : LACPY_DL_CUDA, gpu < 0 ? 0 : gpu);
}

/* What a plan has put on a stream must be done, or be on the stream that the consumer goes on with. It says -1 where it does not care. */
static int hand_over(lacpy_device_array *self, PyObject *stream)
{
    if (self->device->gpu < 0) return 0;
    int64_t number = 1;
    if (stream && stream != Py_None && lacpy_integer("stream", stream, -1, INT64_MAX, &number) < 0) return -1;
    lacpy_device_array *base = self->base ? (lacpy_device_array *)self->base : self;
    if (number == -1 || (void *)(uintptr_t)(number == 1 ? 0 : number) == base->stream) return 0;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_device_synchronize(self->device->device);
    Py_END_ALLOW_THREADS;
    return lacpy_check(status);
}

/* Where the consumer wants something else than this very memory: BufferError, as DLPack's specification has it. */
static int can_lend(PyObject *object, PyObject *device, PyObject *copy)
{
    if (copy && copy != Py_None && PyObject_IsTrue(copy)) {
        PyErr_SetString(PyExc_BufferError, "copy is True; a DeviceArray is handed on without a copy");
        return -1;
    }
    if (!device || device == Py_None) return 0;
    PyObject *own = dlpack_device(object, NULL);
    int same = own ? PyObject_RichCompareBool(own, device, Py_EQ) : -1;
    if (same == 0) PyErr_Format(PyExc_BufferError, "dl_device is %R; the array is on %R", device, own);
    Py_XDECREF(own);
    return same == 1 ? 0 : -1;
}

static PyObject *dlpack(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static const char *const none[] = {NULL};
    lacpy_device_array *self = (lacpy_device_array *)object;
    PyObject *rest = NULL;
    if (lacpy_arguments("__dlpack__", args, kwargs, none, 0, NULL, &rest) < 0) return NULL;
    PyObject *stream = lacpy_take(rest, "stream"), *version = lacpy_take(rest, "max_version"),
             *device = lacpy_take(rest, "dl_device"), *copy = lacpy_take(rest, "copy"),
             *major = version ? PySequence_GetItem(version, 0) : NULL, *capsule = NULL;
    int64_t newest = 0;
    lent *it = NULL;
    if ((version && !major) || (major && lacpy_integer("max_version", major, 0, INT64_MAX, &newest) < 0) ||
        lacpy_none_left("__dlpack__", rest) < 0 || can_lend(object, device, copy) < 0 || hand_over(self, stream) < 0)
        goto done;
    if (!(it = PyMem_Calloc(1, sizeof *it))) {
        PyErr_NoMemory();
        goto done;
    }
    memcpy(it->shape, self->shape, sizeof it->shape);
    memcpy(it->stride, self->stride, sizeof it->stride);
    const lacpy_dl_tensor tensor = {.data = self->data,
                                    .device_type = self->device->gpu < 0 ? LACPY_DL_CPU : LACPY_DL_CUDA,
                                    .device_number = self->device->gpu < 0 ? 0 : self->device->gpu,
                                    .dimensions = self->dimensions,
                                    .code = self->dtype == LAC_DTYPE_BF16 ? LACPY_DL_BFLOAT : LACPY_DL_FLOAT,
                                    .bits = (uint8_t)(8 * lac_dtype_size(self->dtype)),
                                    .lanes = 1,
                                    .shape = it->shape,
                                    .strides = it->stride};
    if (newest >= LACPY_DL_MAJOR)
        it->versioned = (lacpy_dl_versioned){.major = LACPY_DL_MAJOR,
                                             .minor = LACPY_DL_MINOR,
                                             .owner = object,
                                             .deleter = give_back_versioned,
                                             .tensor = tensor};
    else
        it->plain = (lacpy_dl_managed){.tensor = tensor, .owner = object, .deleter = give_back_plain};
    capsule = PyCapsule_New(it, newest >= LACPY_DL_MAJOR ? LACPY_DL_VERSIONED : LACPY_DL_NAME, destroy_capsule);
    if (capsule)
        Py_INCREF(object);
    else
        PyMem_Free(it);
done:
    Py_XDECREF(stream);
    Py_XDECREF(version);
    Py_XDECREF(device);
    Py_XDECREF(copy);
    Py_XDECREF(major);
    Py_DECREF(rest);
    return capsule;
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

static PyObject *get_nbytes(PyObject *object, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(((lacpy_device_array *)object)->bytes);
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
     "copy_from(array, /)\n--\n\nCopies an array of the host's, of the same shape and dtype and without gaps, into this one, "
     "which it returns."},
    {"numpy", to_numpy, METH_NOARGS,
     "numpy()\n--\n\nA copy as a numpy array, after all that was put on the device's default stream."},
    {"__dlpack__",
     LACPY_CALL(dlpack, LACPY_KEYWORDS,
                "__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\nA capsule, for from_dlpack.")},
    {"__dlpack_device__", dlpack_device, METH_NOARGS, "__dlpack_device__()\n--\n\n(kind, number), for from_dlpack."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef attributes[] = {{"shape", get_shape, NULL, "its sizes", NULL},
                                   {"dtype", get_dtype, NULL, "'f32', 'f16', 'bf16' or 'f64'", NULL},
                                   {"device", get_device, NULL, "the Device in whose memory it lies", NULL},
                                   {"T", get_transpose, NULL, "the transpose, which shares its memory", NULL},
                                   {"nbytes", get_nbytes, NULL, "of its elements", NULL},
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

/* dlpack.c - arrays that come as DLPack's capsules. A capsule is borrowed while it lives: it is not renamed, so that its own destructor gives the array
 * back. */
#include "dlpack.h"
#include "lacpy.h"

static lac_dtype dtype_of(const lacpy_dl_tensor *t)
{
    if (t->lanes != 1) return LAC_DTYPE_NONE;
    if (t->code == LACPY_DL_BFLOAT && t->bits == 16) return LAC_DTYPE_BF16;
    if (t->code != LACPY_DL_FLOAT) return LAC_DTYPE_NONE;
    return t->bits == 32 ? LAC_DTYPE_F32 : t->bits == 16 ? LAC_DTYPE_F16 : t->bits == 64 ? LAC_DTYPE_F64 : LAC_DTYPE_NONE;
}

/* Shape and strides; a capsule is as hostile as a file. */
static int read_shape(const lacpy_dl_tensor *t, const char *name, lacpy_array *out)
{
    if (t->dimensions < 0 || t->dimensions > LACPY_MOST_DIMENSIONS) {
        PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT], "%s has %d dimensions; it may have %d", name,
                     (int)t->dimensions, LACPY_MOST_DIMENSIONS);
        return -1;
    }
    out->dimensions = t->dimensions;
    int64_t next = 1;
    for (int i = t->dimensions - 1; i >= 0; i--) {
        if (!t->shape || t->shape[i] < 0) {
            PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT], "%s has a DLPack shape whose dimension %d is %lld", name, i,
                         t->shape ? (long long)t->shape[i] : -1LL);
            return -1;
        }
        out->shape[i] = t->shape[i];
        out->stride[i] = t->strides ? t->strides[i] : next;
        if (__builtin_mul_overflow(next, t->shape[i] ? t->shape[i] : 1, &next) || next > INT64_MAX / 8) {
            PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT], "%s has a DLPack shape of more elements than memory has",
                         name);
            return -1;
        }
    }
    return 0;
}

static int read_tensor(const lacpy_dl_tensor *t, const char *name, lacpy_array *out)
{
    out->dtype = dtype_of(t);
    if (!out->dtype) {
        PyErr_Format(PyExc_TypeError,
                     "%s has elements of DLPack's type %d with %d bits and %d lanes; they must be f32, f16, bf16 or f64", name,
                     (int)t->code, (int)t->bits, (int)t->lanes);
        return -1;
    }
    out->on_gpu = t->device_type == LACPY_DL_CUDA || t->device_type == LACPY_DL_CUDA_MANAGED;
    if (!out->on_gpu && t->device_type != LACPY_DL_CPU && t->device_type != LACPY_DL_CUDA_HOST) {
        PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT],
                     "%s is on a device of DLPack's kind %d; it must be a CPU's or a CUDA GPU's", name, (int)t->device_type);
        return -1;
    }
    out->gpu = out->on_gpu ? t->device_number : 0;
    out->data = t->data ? (char *)t->data + t->byte_offset : NULL;
    return read_shape(t, name, out);
}

/* Is its memory a GPU's, by what the array says of itself? -1 with an exception. */
static int is_on_gpu(PyObject *object)
{
    PyObject *method = lacpy_get(object, "__dlpack_device__"), *device = method ? PyObject_CallObject(method, NULL) : NULL,
             *kind = device ? PySequence_GetItem(device, 0) : NULL, *number = kind ? PyNumber_Long(kind) : NULL;
    long value = number ? PyLong_AsLong(number) : -1;
    Py_XDECREF(method);
    Py_XDECREF(device);
    Py_XDECREF(kind);
    Py_XDECREF(number);
    if (PyErr_Occurred()) return -1;
    return value == LACPY_DL_CUDA || value == LACPY_DL_CUDA_MANAGED;
}

/* The stream is that on which the array's owner must have finished: DLPack writes CUDA's default stream as 1. */
static PyObject *ask_for_capsule(PyObject *object, void *stream)
{
    int on_gpu = is_on_gpu(object);
    if (on_gpu < 0) return NULL;
    PyObject *method = lacpy_get(object, "__dlpack__"), *nothing = PyTuple_New(0),
             *named = Py_BuildValue("{s(ii)}", "max_version", LACPY_DL_MAJOR, LACPY_DL_MINOR), *capsule = NULL;
    int ready = method && nothing && named;
    if (ready && on_gpu) {
        PyObject *number = stream ? PyLong_FromVoidPtr(stream) : PyLong_FromLong(1);
        ready = number && PyDict_SetItemString(named, "stream", number) == 0;
        Py_XDECREF(number);
    }
    if (ready) capsule = PyObject_Call(method, nothing, named);
    if (ready && !capsule &&
        PyErr_ExceptionMatches(PyExc_TypeError)) { /* it is older than versions, and does not know the keyword */
        PyErr_Clear();
        if (PyDict_DelItemString(named, "max_version") == 0) capsule = PyObject_Call(method, nothing, named);
    }
    Py_XDECREF(method);
    Py_XDECREF(nothing);
    Py_XDECREF(named);
    return capsule;
}

int lacpy_dlpack_look(PyObject *object, const char *name, lacpy_access access, void *stream, lacpy_array *out)
{
    out->holder = ask_for_capsule(object, stream);
    if (!out->holder) return -1;
    if (PyCapsule_IsValid(out->holder, LACPY_DL_NAME)) {
        const lacpy_dl_managed *managed = PyCapsule_GetPointer(out->holder, LACPY_DL_NAME);
        return managed ? read_tensor(&managed->tensor, name, out) : -1;
    }
    const lacpy_dl_versioned *managed = NULL;
    if (PyCapsule_IsValid(out->holder, LACPY_DL_VERSIONED)) managed = PyCapsule_GetPointer(out->holder, LACPY_DL_VERSIONED);
    if (!managed) {
        PyErr_Format(PyExc_TypeError, "%s has a __dlpack__ that gives %R; it must give a capsule named '%s' or '%s'", name,
                     out->holder, LACPY_DL_NAME, LACPY_DL_VERSIONED);
        return -1;
    }
    if (managed->major != LACPY_DL_MAJOR) {
        PyErr_Format(PyExc_BufferError, "%s comes by version %u.%u of DLPack; Lacuna knows version %d", name,
                     (unsigned)managed->major, (unsigned)managed->minor, LACPY_DL_MAJOR);
        return -1;
    }
    if (access == LACPY_WRITE && (managed->flags & LACPY_DL_READ_ONLY)) {
        PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT], "%s is read-only; it must be writable", name);
        return -1;
    }
    if (access == LACPY_WRITE && (managed->flags & LACPY_DL_COPIED)) {
        PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT],
                     "%s gives a copy of itself by DLPack, and would not see what is written there", name);
        return -1;
    }
    return read_tensor(&managed->tensor, name, out);
}

/* array.c - looks at other people's arrays without copying them. Those with a buffer (numpy, memoryview) are asked for it, all others for DLPack's capsule
 * (PyTorch, CuPy, JAX, our DeviceArray), whose layout https://dmlc.github.io/dlpack specifies. Results are made by lacuna._arrays.empty, of the kind of
 * the array that came in. */
#include <stdio.h>
#include <string.h>

#include "dlpack.h"
#include "lacpy.h"

/* ---- by the buffer protocol */

static lac_dtype dtype_of_format(const char *format)
{
    if (!format) return LAC_DTYPE_NONE;
    if (*format == '@' || *format == '=' || *format == '<') format++; /* the machines that Lacuna runs on are little-endian */
    if (format[0] == '\0' || format[1] != '\0') return LAC_DTYPE_NONE;
    return *format == 'f' ? LAC_DTYPE_F32 : *format == 'e' ? LAC_DTYPE_F16 : *format == 'd' ? LAC_DTYPE_F64 : LAC_DTYPE_NONE;
}

/* `dtype` is what the elements are where their format does not say it. */
static int look_at_buffer(PyObject *object, const char *name, lacpy_access access, lac_dtype dtype, lacpy_array *out)
{
    int flags = PyBUF_STRIDES | PyBUF_FORMAT | (access == LACPY_WRITE ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, &out->buffer, flags) < 0) return -1;
    const Py_buffer *b = &out->buffer;
    out->has_buffer = true;
    out->data = b->buf;
    out->dtype = dtype ? dtype : dtype_of_format(b->format);
    if (!out->dtype) {
        PyErr_Format(PyExc_TypeError, "%s has elements of type '%s'; they must be f32, f16, bf16 or f64", name,
                     b->format ? b->format : "B");
        return -1;
    }
    if (b->ndim > LACPY_MOST_DIMENSIONS) {
        PyErr_Format(PyExc_ValueError, "%s has %d dimensions; it may have %d", name, b->ndim, LACPY_MOST_DIMENSIONS);
        return -1;
    }
    out->dimensions = b->ndim;
    for (int i = 0; i < b->ndim; i++) {
        out->shape[i] = b->shape[i];
        out->stride[i] = b->strides[i] / b->itemsize;
        if (b->strides[i] % b->itemsize == 0 || b->shape[i] <= 1) continue;
        PyErr_Format(PyExc_ValueError, "%s has a stride of %zd bytes, which is no multiple of its elements' %zd", name,
                     b->strides[i], b->itemsize);
        return -1;
    }
    return 0;
}

/* ---- by DLPack */

static lac_dtype dtype_of_dlpack(const lacpy_dl_tensor *t)
{
    if (t->lanes != 1) return LAC_DTYPE_NONE;
    if (t->code == LACPY_DL_BFLOAT && t->bits == 16) return LAC_DTYPE_BF16;
    if (t->code != LACPY_DL_FLOAT) return LAC_DTYPE_NONE;
    return t->bits == 32 ? LAC_DTYPE_F32 : t->bits == 16 ? LAC_DTYPE_F16 : t->bits == 64 ? LAC_DTYPE_F64 : LAC_DTYPE_NONE;
}

static int read_dlpack(const lacpy_dl_tensor *t, const char *name, lacpy_array *out)
{
    out->dtype = dtype_of_dlpack(t);
    if (!out->dtype) {
        PyErr_Format(PyExc_TypeError, "%s has elements of DLPack's type %d with %d bits; they must be f32, f16, bf16 or f64",
                     name, (int)t->code, (int)t->bits);
        return -1;
    }
    if (t->dimensions > LACPY_MOST_DIMENSIONS) {
        PyErr_Format(PyExc_ValueError, "%s has %d dimensions; it may have %d", name, (int)t->dimensions, LACPY_MOST_DIMENSIONS);
        return -1;
    }
    out->on_gpu = t->device_type == LACPY_DL_CUDA || t->device_type == LACPY_DL_CUDA_MANAGED;
    if (!out->on_gpu && t->device_type != LACPY_DL_CPU && t->device_type != LACPY_DL_CUDA_HOST) {
        PyErr_Format(PyExc_ValueError, "%s is on a device of DLPack's kind %d; it must be a CPU's or a CUDA GPU's", name,
                     (int)t->device_type);
        return -1;
    }
    out->gpu = out->on_gpu ? t->device_number : 0;
    out->data = (char *)t->data + t->byte_offset;
    out->dimensions = t->dimensions;
    int64_t next = 1;
    for (int i = t->dimensions - 1; i >= 0; i--) {
        out->shape[i] = t->shape[i];
        out->stride[i] = t->strides ? t->strides[i] : next;
        next *= t->shape[i];
    }
    return 0;
}

/* The stream on which the array's owner must have finished: DLPack writes CUDA's default stream as 1. */
static PyObject *ask_for_capsule(PyObject *object, void *stream)
{
    PyObject *device = PyObject_CallMethod(object, "__dlpack_device__", NULL);
    long kind = 0;
    if (device) {
        PyObject *first = PySequence_GetItem(device, 0);
        PyObject *number = first ? PyNumber_Long(first) : NULL;
        if (number) kind = PyLong_AsLong(number);
        Py_XDECREF(first);
        Py_XDECREF(number);
        Py_DECREF(device);
    }
    if (PyErr_Occurred()) return NULL;
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__"), *nothing = PyTuple_New(0), *named = PyDict_New(),
             *capsule = NULL;
    int ready = method && nothing && named;
    if (ready && (kind == LACPY_DL_CUDA || kind == LACPY_DL_CUDA_MANAGED)) {
        PyObject *number = stream ? PyLong_FromVoidPtr(stream) : PyLong_FromLong(1);
        ready = number && PyDict_SetItemString(named, "stream", number) == 0;
        Py_XDECREF(number);
    }
    if (ready) capsule = PyObject_Call(method, nothing, named);
    Py_XDECREF(method);
    Py_XDECREF(nothing);
    Py_XDECREF(named);
    return capsule;
}

static int look_at_dlpack(PyObject *object, const char *name, void *stream, lacpy_array *out)
{
    out->holder = ask_for_capsule(object, stream);
    if (!out->holder) return -1;
    /* Borrowed while the capsule lives: it is not renamed, so its own destructor gives the array back. */
    const lacpy_dl_managed *managed = PyCapsule_GetPointer(out->holder, LACPY_DL_NAME);
    return managed ? read_dlpack(&managed->tensor, name, out) : -1;
}

/* ---- ours */

static void look_at_device_array(lacpy_device_array *array, lacpy_array *out)
{
    out->data = array->data;
    out->dtype = array->dtype;
    out->dimensions = array->dimensions;
    int64_t next = 1;
    for (int i = array->dimensions - 1; i >= 0; i--) {
        out->shape[i] = array->shape[i];
        out->stride[i] = next;
        next *= array->shape[i];
    }
    out->on_gpu = array->device->gpu >= 0;
    out->gpu = out->on_gpu ? array->device->gpu : 0;
    out->holder = Py_NewRef((PyObject *)array);
}

/* Arrays that have neither, but whose bytes are known: lacuna._arrays.adapt gives (something with a buffer, the dtype's name) or None. */
static int look_at_adapted(PyObject *object, const char *name, lacpy_access access, lacpy_array *out)
{
    PyObject *pair = PyObject_CallFunctionObjArgs(lacpy.adapt, object, NULL);
    if (!pair) return -1;
    int result = -1;
    if (pair == Py_None) {
        PyObject *type = PyType_GetName(Py_TYPE(object));
        PyErr_Format(PyExc_TypeError,
                     "%s is of type %V; it must be an array: numpy's, PyTorch's, or any with a buffer or __dlpack__", name,
                     type, "?");
        Py_XDECREF(type);
    } else {
        lac_dtype dtype = LAC_DTYPE_NONE;
        if (PyTuple_Check(pair) && PyTuple_Size(pair) == 2 && lacpy_dtype_parse(name, PyTuple_GetItem(pair, 1), &dtype) == 0)
            result = look_at_buffer(PyTuple_GetItem(pair, 0), name, access, dtype, out);
    }
    Py_DECREF(pair);
    return result;
}

int lacpy_array_get(PyObject *object, const char *name, lacpy_access access, void *stream, lacpy_array *out)
{
    *out = (lacpy_array){0};
    int result = 0;
    if (lacpy.device_array && PyObject_TypeCheck(object, lacpy.device_array)) {
        look_at_device_array((lacpy_device_array *)object, out);
    } else if (PyObject_CheckBuffer(object)) {
        result = look_at_buffer(object, name, access, LAC_DTYPE_NONE, out);
        if (result < 0 && !out->has_buffer && PyErr_ExceptionMatches(PyExc_ValueError)) {
            /* numpy gives no buffer of dtypes that it does not know itself (bfloat16), nor a writable one of a read-only array */
            PyObject *type, *value, *traceback;
            PyErr_Fetch(&type, &value, &traceback);
            PyObject *pair = PyObject_CallFunctionObjArgs(lacpy.adapt, object, NULL);
            bool known = pair && pair != Py_None;
            Py_XDECREF(pair);
            PyErr_Clear();
            if (known) {
                Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(traceback);
                result = look_at_adapted(object, name, access, out);
            } else {
                PyErr_Restore(type, value, traceback);
            }
        }
    } else if (PyObject_HasAttrString(object, "__dlpack__")) {
        result = look_at_dlpack(object, name, stream, out);
    } else {
        result = look_at_adapted(object, name, access, out);
    }
    out->is_vector = out->dimensions == 1;
    if (result < 0) lacpy_array_release(out);
    return result;
}

void lacpy_array_release(lacpy_array *array)
{
    if (array->has_buffer) PyBuffer_Release(&array->buffer);
    array->has_buffer = false;
    Py_CLEAR(array->holder);
}

/* ---- as matrices */

static void raise_shape(const lacpy_array *array, const char *name, int64_t rows, int64_t cols)
{
    char text[LACPY_MOST_DIMENSIONS * 24] = "", wanted[64];
    size_t at = 0;
    for (int i = 0; i < array->dimensions; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%lld", i ? ", " : "", (long long)array->shape[i]);
    if (rows < 0 || cols < 0)
        snprintf(wanted, sizeof wanted, "a matrix");
    else
        snprintf(wanted, sizeof wanted, "(%lld, %lld)", (long long)rows, (long long)cols);
    PyErr_Format(PyExc_ValueError, "%s has the shape (%s%s); it must be %s", name, text, array->dimensions == 1 ? "," : "",
                 wanted);
}

int lacpy_array_leading(const lacpy_array *array, const char *name, lac_layout layout, int64_t *ld)
{
    int outer = layout == LAC_LAYOUT_ROW_MAJOR ? 0 : 1, inner = 1 - outer;
    bool dense_lines = array->shape[inner] <= 1 || array->stride[inner] == 1;
    bool apart = array->shape[outer] <= 1 || array->stride[outer] >= array->shape[inner];
    if (dense_lines && apart) {
        *ld = array->shape[outer] <= 1 ? 0 : array->stride[outer];
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "%s has the strides (%lld, %lld), in elements; %s-major it must have %s", name,
                 (long long)array->stride[0], (long long)array->stride[1], outer ? "feature" : "token",
                 outer ? "(1, the number of rows or more)" : "(the number of columns or more, 1)");
    return -1;
}

int lacpy_array_matrix(const lacpy_array *array, const char *name, int64_t rows, int64_t cols, lac_matrix *out)
{
    if (array->on_gpu) {
        PyErr_Format(PyExc_ValueError, "%s is in the memory of GPU %d; it must be in the host's", name, array->gpu);
        return -1;
    }
    if (array->dimensions != 2 || (rows >= 0 && array->shape[0] != rows) || (cols >= 0 && array->shape[1] != cols)) {
        raise_shape(array, name, rows, cols);
        return -1;
    }
    *out = (lac_matrix){.data = array->data, .dtype = array->dtype, .rows = array->shape[0], .cols = array->shape[1]};
    bool by_rows = array->shape[1] <= 1 || array->stride[1] == 1;
    out->layout = by_rows ? LAC_LAYOUT_ROW_MAJOR : LAC_LAYOUT_COLUMN_MAJOR;
    if (lacpy_array_leading(array, name, out->layout, &out->ld) == 0) return 0;
    if (array->stride[0] == 1 && array->shape[0] > 1 && by_rows) { /* a single column, or rows that overlap */
        PyErr_Clear();
        out->layout = LAC_LAYOUT_COLUMN_MAJOR;
        return lacpy_array_leading(array, name, out->layout, &out->ld);
    }
    return -1;
}

int lacpy_matrix_get(PyObject *object, const char *name, lacpy_access access, int64_t rows, int64_t cols, lacpy_array *array,
                     lac_matrix *out)
{
    if (lacpy_array_get(object, name, access, NULL, array) < 0) return -1;
    if (lacpy_array_matrix(array, name, rows, cols, out) == 0) return 0;
    lacpy_array_release(array);
    return -1;
}

/* ---- new ones */

PyObject *lacpy_array_new(PyObject *like, int dimensions, const int64_t *shape, lac_dtype dtype, lac_layout layout)
{
    PyObject *sizes = PyTuple_New(dimensions);
    for (int i = 0; sizes && i < dimensions; i++) {
        PyObject *size = PyLong_FromLongLong(shape[i]);
        if (!size || PyTuple_SetItem(sizes, i, size) < 0) Py_CLEAR(sizes);
    }
    if (!sizes) return NULL;
    return PyObject_CallFunction(lacpy.empty, "ONsi", like ? like : Py_None, sizes, lac_dtype_name(dtype),
                                 layout == LAC_LAYOUT_FEATURE_MAJOR);
}

PyObject *lacpy_array_of_u32(const uint32_t *values, int64_t count)
{
    PyObject *array = PyObject_CallFunction(lacpy.empty, "O(L)si", Py_None, (long long)count, "u32", 0);
    if (!array) return NULL;
    Py_buffer buffer;
    if (PyObject_GetBuffer(array, &buffer, PyBUF_WRITABLE) < 0) {
        Py_DECREF(array);
        return NULL;
    }
    if (count) memcpy(buffer.buf, values, (size_t)count * sizeof *values);
    PyBuffer_Release(&buffer);
    return array;
}

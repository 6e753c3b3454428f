/* array.c - looks at other people's arrays without copying them. Those with a buffer (numpy, memoryview) are asked for it, all others for DLPack's capsule
 * (PyTorch, CuPy, JAX: dlpack.c). Results are made by lacuna._arrays.empty, of the kind of the array that came in. */
#include <stdio.h>
#include <string.h>

#include "lacpy.h"

/* ---- by the buffer protocol */

static lac_dtype dtype_of_format(const char *format)
{
    if (!format) return LAC_DTYPE_NONE;
    if (*format == '@' || *format == '=' || *format == '<') format++; /* the machines that Lacuna runs on are little-endian */
    if (format[0] == '\0' || format[1] != '\0') return LAC_DTYPE_NONE;
    return *format == 'f' ? LAC_DTYPE_F32 : *format == 'e' ? LAC_DTYPE_F16 : *format == 'd' ? LAC_DTYPE_F64 : LAC_DTYPE_NONE;
}

/* The exception that is set is numpy's or some other owner's, who knows no name of the argument: says what is wrong where that is known. */
static void explain_refusal(PyObject *object, const char *name, lacpy_access access)
{
    if (access != LACPY_WRITE || !(PyErr_ExceptionMatches(PyExc_ValueError) || PyErr_ExceptionMatches(PyExc_BufferError)))
        return;
    PyObject *type, *value, *traceback;
    Py_buffer readable;
    PyErr_Fetch(&type, &value, &traceback);
    if (PyObject_GetBuffer(object, &readable, PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
        PyErr_Clear();
        PyErr_Restore(type, value, traceback);
        return;
    }
    PyBuffer_Release(&readable);
    Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(traceback);
    PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT], "%s is read-only; it must be writable", name);
}

/* A subclass of numpy's arrays may be more than its elements: of one with a mask that would be lost without a word. */
int lacpy_refuse_masked(PyObject *object, const char *name)
{
    if (Py_TYPE(object) == lacpy.ndarray || !PyObject_TypeCheck(object, lacpy.ndarray)) return 0;
    const int has = lacpy_has(object, "mask");
    if (has <= 0) return has;
    PyErr_Format(PyExc_TypeError, "%s is a masked array, whose mask Lacuna does not know; pass its data, or filled()", name);
    return -1;
}

/* `dtype` is what the elements are where their format does not say it. */
static int look_at_buffer(PyObject *object, const char *name, lacpy_access access, lac_dtype dtype, lacpy_array *out)
{
    int flags = PyBUF_STRIDES | PyBUF_FORMAT | (access == LACPY_WRITE ? PyBUF_WRITABLE : 0);
    if (lacpy_refuse_masked(object, name) < 0) return -1;
    if (PyObject_GetBuffer(object, &out->buffer, flags) < 0) return (explain_refusal(object, name, access), -1);
    const Py_buffer *b = &out->buffer;
    out->has_buffer = true;
    out->data = b->buf;
    out->dtype = dtype ? dtype : dtype_of_format(b->format);
    if (!out->dtype || b->itemsize != (Py_ssize_t)lac_dtype_size(out->dtype)) {
        PyErr_Format(PyExc_TypeError, "%s has elements of type '%s'; they must be f32, f16, bf16 or f64", name,
                     b->format ? b->format : "B");
        return -1;
    }
    if (b->ndim > LACPY_MOST_DIMENSIONS) {
        PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT], "%s has %d dimensions; it may have %d", name, b->ndim,
                     LACPY_MOST_DIMENSIONS);
        return -1;
    }
    out->dimensions = b->ndim;
    Py_ssize_t next = b->itemsize;
    for (int i = b->ndim - 1; i >= 0; i--) {
        const Py_ssize_t stride = b->strides ? b->strides[i] : next;
        out->shape[i] = b->shape[i];
        out->stride[i] = stride / b->itemsize;
        if (!b->strides) next *= b->shape[i]; /* ctypes gives no strides, though it was asked for them */
        if (stride % b->itemsize == 0 || b->shape[i] <= 1) continue;
        PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT],
                     "%s has a stride of %zd bytes, which is no multiple of its elements' %zd", name, stride, b->itemsize);
        return -1;
    }
    return 0;
}

/* ---- ours */

static void look_at_device_array(lacpy_device_array *array, lacpy_array *out)
{
    out->data = array->data;
    out->dtype = array->dtype;
    out->dimensions = array->dimensions;
    memcpy(out->shape, array->shape, sizeof out->shape);
    memcpy(out->stride, array->stride, sizeof out->stride);
    out->on_gpu = array->device->gpu >= 0;
    out->gpu = out->on_gpu ? array->device->gpu : 0;
    out->holder = Py_NewRef((PyObject *)array);
}

/* Arrays that have neither, but whose bytes are known: lacuna._arrays.adapt gives (something with a buffer, the dtype's name) or None. What is set when
 * this is called, if anything, is why the array's own buffer was refused. */
static int look_at_adapted(PyObject *object, const char *name, lacpy_access access, lacpy_array *out)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *pair = PyObject_CallFunctionObjArgs(lacpy.adapt, object, NULL);
    int result = -1;
    if (pair == Py_None && type) {
        PyErr_Restore(type, value, traceback);
        type = value = traceback = NULL;
    } else if (pair == Py_None) {
        PyObject *kind = PyType_GetName(Py_TYPE(object));
        PyErr_Format(PyExc_TypeError,
                     "%s is of type %V; it must be an array: numpy's, PyTorch's, or any with a buffer or __dlpack__", name,
                     kind, "?");
        Py_XDECREF(kind);
    } else if (pair) {
        lac_dtype dtype = LAC_DTYPE_NONE;
        if (PyTuple_Check(pair) && PyTuple_Size(pair) == 2 && lacpy_dtype_parse(name, PyTuple_GetItem(pair, 1), &dtype) == 0)
            result = look_at_buffer(PyTuple_GetItem(pair, 0), name, access, dtype, out);
    }
    Py_XDECREF(pair);
    Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(traceback);
    return result;
}

int lacpy_array_get(PyObject *object, const char *name, lacpy_access access, void *stream, lacpy_array *out)
{
    *out = (lacpy_array){0};
    int result = 0, has;
    if (lacpy.device_array && PyObject_TypeCheck(object, lacpy.device_array)) {
        look_at_device_array((lacpy_device_array *)object, out);
    } else if (PyObject_CheckBuffer(object)) {
        result = look_at_buffer(object, name, access, LAC_DTYPE_NONE, out);
        /* numpy gives no buffer of dtypes that it does not know itself, such as bfloat16 */
        if (result < 0 && !out->has_buffer && PyErr_ExceptionMatches(PyExc_ValueError))
            result = look_at_adapted(object, name, access, out);
    } else if ((has = lacpy_has(object, "__dlpack__")) != 0) {
        result = has < 0 ? -1 : lacpy_dlpack_look(object, name, access, stream, out);
    } else {
        result = look_at_adapted(object, name, access, out);
    }
    out->is_vector = out->dimensions == 1;
    if (result < 0) lacpy_array_release(out);
    return result;
}

void lacpy_array_release(lacpy_array *array)
{
    if (!array->has_buffer && !array->holder) return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback); /* the owner's code runs here */
    if (array->has_buffer) PyBuffer_Release(&array->buffer);
    array->has_buffer = false;
    Py_CLEAR(array->holder);
    PyErr_Restore(type, value, traceback);
}

/* ---- as matrices */

void lacpy_raise_shape(const lacpy_array *array, const char *name, const char *wanted)
{
    char text[LACPY_MOST_DIMENSIONS * 24] = "";
    size_t at = 0;
    for (int i = 0; i < array->dimensions; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%lld", i ? ", " : "", (long long)array->shape[i]);
    PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT], "%s has the shape (%s%s); it must be %s", name, text,
                 array->dimensions == 1 ? "," : "", wanted);
}

static void raise_size(const lacpy_array *array, const char *name, int64_t rows, int64_t cols)
{
    char wanted[80], height[24] = "rows", width[24] = "columns";
    if (rows >= 0) snprintf(height, sizeof height, "%lld", (long long)rows);
    if (cols >= 0) snprintf(width, sizeof width, "%lld", (long long)cols);
    snprintf(wanted, sizeof wanted, rows < 0 && cols < 0 ? "a matrix" : "(%s, %s)", height, width);
    lacpy_raise_shape(array, name, wanted);
}

/* The lines of a matrix: `count` of them, `bytes` long, `apart` bytes from one to the next. */
typedef struct lines {
    const char *first;
    int64_t count, bytes, apart;
} lines;

static lines lines_of(const lacpy_array *a)
{
    const int64_t size = (int64_t)lac_dtype_size(a->dtype);
    if (a->dimensions == 1) return (lines){a->data, 1, a->shape[0] * size, 0};
    int outer = a->shape[1] <= 1 || a->stride[1] == 1 ? 0 : 1;
    if (outer == 0 && a->shape[1] == 1 && a->stride[0] == 1) outer = 1; /* a column without gaps */
    const int64_t apart = a->shape[outer] <= 1 ? 0 : a->stride[outer];  /* of one line it may be any number */
    return (lines){a->data, a->shape[outer], a->shape[1 - outer] * size, apart * size};
}

/* Does a line of `b` reach into the bytes [at, at + bytes)? */
static bool reaches(const lines *b, int64_t at, int64_t bytes)
{
    int64_t past = at - b->bytes; /* a line that begins at or before this ends before `at` */
    int64_t line = past < 0 ? 0 : b->apart > 0 ? past / b->apart + 1 : 1;
    return line < b->count && line * b->apart < at + bytes;
}

bool lacpy_array_meets(const lacpy_array *a, const lacpy_array *b)
{
    lines p = lines_of(a), q = lines_of(b);
    if (a->on_gpu != b->on_gpu || p.count == 0 || q.count == 0 || p.bytes == 0 || q.bytes == 0) return false;
    const uintptr_t p_first = (uintptr_t)p.first, q_first = (uintptr_t)q.first;
    const uintptr_t p_end = p_first + (uintptr_t)((p.count - 1) * p.apart + p.bytes),
                    q_end = q_first + (uintptr_t)((q.count - 1) * q.apart + q.bytes);
    if (p_end <= q_first || q_end <= p_first) return false;
    for (int64_t i = 0; i < p.count; i++) /* they may still be columns of one buffer */
        if (reaches(&q, (int64_t)(p_first - q_first) + i * p.apart, p.bytes)) return true;
    return false;
}

int lacpy_array_leading(const lacpy_array *array, const char *name, lac_layout layout, int64_t *ld)
{
    int outer = layout == LAC_LAYOUT_ROW_MAJOR ? 0 : 1, inner = 1 - outer;
    bool dense_lines = array->shape[inner] <= 1 || array->stride[inner] == 1;
    bool apart = array->shape[outer] <= 1 || array->stride[outer] >= array->shape[inner];
    if (dense_lines && apart) {
        int64_t reach;
        *ld = array->shape[outer] <= 1 ? 0 : array->stride[outer];
        if (!__builtin_mul_overflow(*ld, array->shape[outer], &reach) && reach <= INT64_MAX / 8) return 0;
        PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT], "%s has the strides (%lld, %lld), which reach past all memory",
                     name, (long long)array->stride[0], (long long)array->stride[1]);
        return -1;
    }
    PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT],
                 "%s has the strides (%lld, %lld), in elements; %s-major it must have %s", name, (long long)array->stride[0],
                 (long long)array->stride[1], outer ? "feature" : "token",
                 outer ? "(1, the number of rows or more)" : "(the number of columns or more, 1)");
    return -1;
}

int lacpy_array_matrix(const lacpy_array *array, const char *name, int64_t rows, int64_t cols, lac_matrix *out)
{
    if (array->on_gpu) {
        PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT], "%s is in the memory of GPU %d; it must be in the host's", name,
                     array->gpu);
        return -1;
    }
    if (array->dimensions != 2 || (rows >= 0 && array->shape[0] != rows) || (cols >= 0 && array->shape[1] != cols)) {
        raise_size(array, name, rows, cols);
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

PyObject *lacpy_array_new(PyObject *like, int dimensions, const int64_t *shape, lac_dtype dtype, lac_layout layout,
                          PyObject *device)
{
    PyObject *sizes = PyTuple_New(dimensions);
    for (int i = 0; sizes && i < dimensions; i++) {
        PyObject *size = PyLong_FromLongLong(shape[i]);
        if (!size || PyTuple_SetItem(sizes, i, size) < 0) Py_CLEAR(sizes);
    }
    if (!sizes) return NULL;
    return PyObject_CallFunction(lacpy.empty, "ONsOO", like ? like : Py_None, sizes, lac_dtype_name(dtype),
                                 layout == LAC_LAYOUT_FEATURE_MAJOR ? Py_True : Py_False, device ? device : Py_None);
}

PyObject *lacpy_array_of_u32(const uint32_t *values, int64_t count)
{
    PyObject *array = PyObject_CallFunction(lacpy.empty, "O(L)s", Py_None, (long long)count, "u32");
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

/* lacpy.h - what the files of the Python module share. The module, lacuna._core, is lacuna.h and nothing else: it holds the library's objects, looks at
 * arrays without copying them, and turns statuses into exceptions. It keeps to Python's stable ABI, so that one build serves every version from 3.11 on.
 *
 * Calls that may take long, or that may take a lock of Lacuna's, give up the interpreter's lock meanwhile. What Lacuna logs is kept and handed to
 * Python's logging after the call: from within a log callback Python must not be entered, for Lacuna holds locks then. */
#ifndef LACPY_H
#define LACPY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "lacuna.h"

/* ---- names: enums as texts (names.c) */

typedef struct lacpy_name {
    const char *text; /* NULL ends a table */
    int value;
} lacpy_name;

extern const lacpy_name lacpy_families[], lacpy_scores[], lacpy_methods[], lacpy_encodings[], lacpy_overflows[],
    lacpy_layouts[], lacpy_activations[], lacpy_precisions[], lacpy_device_kinds[], lacpy_file_formats[], lacpy_resumes[],
    lacpy_budgets[], lacpy_axes[], lacpy_parts[], lacpy_permutations[];

/* The value that `text`, a str, has in the table; ValueError, which lists the table, where it has none. `what` names the argument. */
int lacpy_name_parse(const lacpy_name *names, const char *what, PyObject *text, int *out);
/* A new str; "" for a value that the table lacks. */
PyObject *lacpy_name_text(const lacpy_name *names, int value);
int lacpy_dtype_parse(const char *what, PyObject *object,
                      lac_dtype *out); /* a str, or anything whose name or str ends with one */

/* ---- fields: the members of a struct of lacuna.h, for attributes, records and keyword arguments alike (fields.c) */

typedef enum lacpy_kind {
    LACPY_BOOL = 1, /* int32_t                              */
    LACPY_INT32,
    LACPY_INT64,
    LACPY_UINT64,
    LACPY_SIZE, /* size_t                                */
    LACPY_DOUBLE,
    LACPY_TEXT,  /* const char *; an option may be None   */
    LACPY_CHARS, /* char[]                                */
    LACPY_ENUM,  /* an enum with `names`                  */
    LACPY_DTYPE,
    LACPY_PATTERN, /* a lac_pattern within the struct       */
    LACPY_FLAGS,   /* uint32_t, a bit for each of `names`   */
    LACPY_SHAPE    /* of a lac_tensor_info, by its rank     */
} lacpy_kind;

typedef struct lacpy_field {
    const char *name; /* NULL ends a table */
    lacpy_kind kind;
    size_t offset;
    const char *doc;
    const lacpy_name *names;
} lacpy_field;

#define LACPY_FIELD(type, member, kind, ...)                                                                                   \
    {                                                                                                                          \
#member, kind, offsetof(type, member), __VA_ARGS__                                                                     \
    }
#define LACPY_FIELD_AS(type, name, member, kind, ...)                                                                          \
    {                                                                                                                          \
        name, kind, offsetof(type, member), __VA_ARGS__                                                                        \
    }

/* The member as a new Python object. */
PyObject *lacpy_field_get(const lacpy_field *field, const void *object);
/* Sets it; -1 with an exception that names it when the value does not do. Texts are borrowed from `value`. */
int lacpy_field_set(const lacpy_field *field, void *object, PyObject *value);
/* Sets members of `object` by keyword arguments; `kwargs` may be NULL. Where a key is in no table: TypeError, unless `rest` is given, which then gets a
 * new dict of those. */
int lacpy_fields_parse(const lacpy_field *fields, void *object, const char *function, PyObject *kwargs, PyObject **rest);
/* Takes `key` out of a dict: a new reference, or NULL, without an exception, when it is not there or None. */
PyObject *lacpy_take(PyObject *dict, const char *key);
/* 0 when nothing is left in the dict, else -1 with a TypeError: the function knows no such keyword. */
int lacpy_none_left(const char *function, PyObject *rest);
/* Arguments that may come by position or by name: `names` ends with NULL, the first `needed` must be there, and values[i] is borrowed, or NULL where the
 * i-th is not given. What is named otherwise is a TypeError, unless `rest` is given, which then gets a new dict of it. */
int lacpy_arguments(const char *function, PyObject *args, PyObject *kwargs, const char *const *names, int needed,
                    PyObject **values, PyObject **rest);
/* An int within [least, most]: 0, or -1 with an exception that names it. */
int lacpy_integer(const char *name, PyObject *value, int64_t least, int64_t most, int64_t *out);
/* An int or a sequence of at most `most` sizes. */
int lacpy_shape_parse(PyObject *shape, int most, int64_t *sizes, int *dimensions);
/* A str as UTF-8, borrowed from it; NULL with an exception that names it. */
const char *lacpy_text(const char *name, PyObject *value);
/* A sequence of str, or one alone, as an array of texts that *held keeps alive, both NULL where `object` is NULL, None or empty. The array is to be
 * released by PyMem_Free, *held by Py_XDECREF. */
int lacpy_texts(const char *name, PyObject *object, const char ***out, size_t *count, PyObject **held);
/* The members as attributes of a type, and `more` (may be NULL) behind them; `get` is called with the field as its closure. It lives as long as the type:
 * for ever. */
PyGetSetDef *lacpy_attributes(const lacpy_field *fields, getter get, const PyGetSetDef *more);
/* A type of records (named tuples) with these fields, added to the module, and one of them. A LACPY_PATTERN is None where the family is 0. */
PyTypeObject *lacpy_record_type(PyObject *module, const char *name, const char *doc, const lacpy_field *fields);
PyObject *lacpy_record(PyTypeObject *type, const lacpy_field *fields, const void *object);

/* ---- errors and log (errors.c) */

int lacpy_errors_init(PyObject *module);
/* Sets the exception of a status, with lac_last_error() as its text, and returns NULL. */
PyObject *lacpy_raise(lac_status status);
/* Hands what was logged to Python's logging; 0, or -1 when a handler raised. Call it after calls that may log. */
int lacpy_log_deliver(void);
/* lacpy_log_deliver, then lacpy_raise unless the status is OK: 0 or -1. */
int lacpy_check(lac_status status);

/* ---- arrays (array.c) */

enum { LACPY_MOST_DIMENSIONS = 8 };

/* A look at somebody's array: the buffer protocol, DLPack (dlpack.c), or a DeviceArray of ours. */
typedef struct lacpy_array {
    void *data;
    lac_dtype dtype;
    int dimensions;
    int64_t shape[LACPY_MOST_DIMENSIONS];
    int64_t stride[LACPY_MOST_DIMENSIONS]; /* in elements */
    bool is_vector;                        /* it came with one dimension */
    bool on_gpu;
    int gpu; /* its number, when on_gpu */
    /* what keeps it alive */
    Py_buffer buffer;
    bool has_buffer;
    PyObject *holder;
} lacpy_array;

typedef enum lacpy_access { LACPY_READ, LACPY_WRITE } lacpy_access;

/* `name` is what messages call it. `stream` is handed to the array's owner where that is a GPU's. */
int lacpy_array_get(PyObject *object, const char *name, lacpy_access access, void *stream, lacpy_array *out);
/* 0, or -1 with a TypeError for an array of numpy's that has a mask: lacpy_array_get asks this itself. */
int lacpy_refuse_masked(PyObject *object, const char *name);
int lacpy_dlpack_look(PyObject *object, const char *name, lacpy_access access, void *stream, lacpy_array *out);
/* Leaves an exception that is set as it is. */
void lacpy_array_release(lacpy_array *array);
/* As a matrix of rank 2 in host memory; where `rows` or `cols` is not negative the shape must be so. */
int lacpy_array_matrix(const lacpy_array *array, const char *name, int64_t rows, int64_t cols, lac_matrix *out);
/* Both at once. */
int lacpy_matrix_get(PyObject *object, const char *name, lacpy_access access, int64_t rows, int64_t cols, lacpy_array *array,
                     lac_matrix *out);
/* The leading dimension of `array` as [rows][cols] in `layout`; -1 with an exception when its strides are not so. */
int lacpy_array_leading(const lacpy_array *array, const char *name, lac_layout layout, int64_t *ld);
/* Do they share an element? Of arrays of rank 2 at most, whose lines lacpy_array_leading has found to be dense, or of vectors without gaps. */
bool lacpy_array_meets(const lacpy_array *a, const lacpy_array *b);
/* Sets the ValueError of an array that has not the shape `wanted`, a text. */
void lacpy_raise_shape(const lacpy_array *array, const char *name, const char *wanted);
/* A new array, not cleared, in `device`'s memory (the host's where that is NULL or a CPU), of `like`'s kind where that may be, else numpy's or ours. */
PyObject *lacpy_array_new(PyObject *like, int dimensions, const int64_t *shape, lac_dtype dtype, lac_layout layout,
                          PyObject *device);
/* A new numpy array of u32, copied. */
PyObject *lacpy_array_of_u32(const uint32_t *values, int64_t count);

/* A read-only memoryview of bytes that `owner` holds; `gone` (may be NULL) is called when it is no more, also when it
 * could not be made (span.c). */
PyObject *lacpy_span_view(PyObject *owner, void (*gone)(PyObject *owner), const void *data, uint64_t bytes);

/* ---- objects: types are made once, when the module is */

typedef struct lacpy_state {
    PyTypeObject *pattern, *device, *device_array, *mask, *calibration, *weight, *plan, *file, *writer, *allocation;
    PyObject *errors[LAC_STATUS_INTERNAL + 1];     /* by status */
    PyObject *adapt, *empty, *stream, *from_bytes; /* of lacuna._arrays: see array.c, plan_call.c, file.c */
    PyTypeObject *ndarray;                         /* numpy's */
    PyTypeObject *weight_info;                     /* a record */
    PyObject *log;                                 /* logging.getLogger("lacuna").log */
} lacpy_state;
extern lacpy_state lacpy;

typedef struct lacpy_pattern {
    PyObject_HEAD;
    lac_pattern pattern;
} lacpy_pattern;

typedef struct lacpy_device {
    PyObject_HEAD;
    lac_device *device;
    lac_device_info info;
    int gpu; /* its number; -1 on a CPU */
} lacpy_device;

typedef struct lacpy_device_array {
    PyObject_HEAD;
    lacpy_device *device;
    void *data;
    lac_dtype dtype;
    int dimensions;
    int64_t shape[LACPY_MOST_DIMENSIONS];
    int64_t stride[LACPY_MOST_DIMENSIONS]; /* in elements: without gaps, or those of a matrix that is transposed */
    uint64_t bytes;
    PyObject *base; /* whose memory it is, when it is a view; else NULL */
    void *stream;   /* on which a plan wrote it last */
} lacpy_device_array;

typedef struct lacpy_mask {
    PyObject_HEAD;
    lac_mask *mask;
    lac_mask_info info;
} lacpy_mask;

typedef struct lacpy_calibration {
    PyObject_HEAD;
    lac_calibration *calibration;
    int64_t k;
    pthread_rwlock_t lock; /* taken without the interpreter's: many read, one adds */
} lacpy_calibration;

typedef struct lacpy_weight {
    PyObject_HEAD;
    lac_weight *weight;
    lac_weight_info info;
    PyObject *weak; /* references to it */
} lacpy_weight;

/* Take what they wrap, also on failure. */
PyObject *lacpy_mask_wrap(lac_mask *mask);
PyObject *lacpy_weight_wrap(lac_weight *weight);
PyObject *lacpy_pattern_wrap(const lac_pattern *pattern);
/* The same of what a call has made, with its status: lacpy_check first, and what it made is freed when that fails. */
PyObject *lacpy_mask_made(int checked, lac_mask *mask);
PyObject *lacpy_weight_made(int checked, lac_weight *weight);

/* A Pattern or its text. */
int lacpy_pattern_of(PyObject *object, const char *name, lac_pattern *out);
/* A sequence of such; *out is to be released by PyMem_Free, and NULL when `object` is NULL, None or empty. */
int lacpy_patterns_of(PyObject *object, const char *name, lac_pattern **out, size_t *count);
/* A Device, a device's name, or None and NULL: "auto". A new reference. */
lacpy_device *lacpy_device_of(PyObject *object);
/* Options of pruning by keyword arguments: what lac_prune_options points to is held by `held`. */
typedef struct lacpy_prune_options {
    lac_prune_options options;
    lac_gradients gradients;
    lacpy_array gradient_array;
    lac_pattern *schedule;
    lacpy_calibration *calibration;
    PyObject *device;
} lacpy_prune_options;
/* 0, or -1 with an exception and nothing to release. Keys that are none of pruning's go into *rest, when that is given. A checkpoint's layers have a
 * calibration each, so that with `of_checkpoint` calibration and gradients are none of pruning's. */
int lacpy_prune_options_parse(lacpy_prune_options *held, const char *function, PyObject *kwargs, bool of_checkpoint,
                              PyObject **rest);
void lacpy_prune_options_release(lacpy_prune_options *held);
/* Options of compressing likewise; nothing to release. */
int lacpy_compress_options_parse(lac_compress_options *options, const char *function, PyObject *kwargs, PyObject **rest);
/* Options of plans by a dict, for those who predict or compile; *held keeps alive what they point to. */
int lacpy_plan_options_of(PyObject *object, const char *name, lac_plan_options *options, PyObject **held);
extern const lacpy_field lacpy_weight_fields[]; /* of lac_weight_info */

/* A callable that long calls report to, and a list of what was reported (callback.c). */
typedef struct lacpy_callback {
    PyObject *function; /* NULL: nobody listens, but Ctrl-C is still looked for */
    PyObject *reports;
    PyTypeObject *record;
    const lacpy_field *fields;
    PyObject *type, *value, *traceback; /* what it raised */
} lacpy_callback;
/* `name` is that of the argument `function`, a callable, None or NULL. 0, or -1 with an exception and nothing to end. */
int lacpy_callback_begin(lacpy_callback *self, const char *name, PyObject *function, PyTypeObject *record,
                         const lacpy_field *fields);
/* Called without the interpreter's lock, from the thread that made the call; not 0: the call is to stop. */
int lacpy_callback_report(lacpy_callback *self, const void *report);
/* lacpy_check, but what the callable raised goes before the status that this led to. */
int lacpy_callback_check(lacpy_callback *self, lac_status status);
void lacpy_callback_end(lacpy_callback *self);

/* What checkpoint.c and allocate.c share: lac_checkpoint_options by keyword arguments. */
typedef struct lacpy_checkpoint {
    lac_checkpoint_options options;
    lac_compress_options compress;
    lacpy_prune_options prune;
    lac_pattern pattern;
    PyObject *in, *calibration; /* paths as bytes */
    const char **texts[3];      /* include, exclude, producers ...   */
    PyObject *held[3];          /* ... and what keeps them           */
    PyObject *allocation;
    lacpy_callback on_layer;
} lacpy_checkpoint;
/* 0, or -1 with an exception and nothing to release. Keys that it does not know go into *rest, a new dict. */
int lacpy_checkpoint_parse(lacpy_checkpoint *held, const char *function, PyObject *in, PyObject *kwargs, PyObject **rest);
void lacpy_checkpoint_release(lacpy_checkpoint *held);

typedef struct lacpy_allocation {
    PyObject_HEAD;
    lac_allocation *allocation;
    lac_allocation_info info;
} lacpy_allocation;

/* Attributes by name. Python remembers what it looked up by the name's object, of which these make one for ever. NULL with an exception; whether there
 * is one, as 1 or 0, or -1 with an exception that is no refusal. */
PyObject *lacpy_get(PyObject *object, const char *name);
int lacpy_has(PyObject *object, const char *name);
/* Does the exception that is set only say that an argument does not do? Ctrl-C and want of memory in its own code are more than that, and come out of the
 * call as they are. */
bool lacpy_is_refusal(void);
/* A path-like object as the file system's bytes; a new reference whose text PyBytes_AsString gives. */
PyObject *lacpy_path(const char *name, PyObject *object);

/* Each file adds what it has to the module: 0 or -1. */
int lacpy_pattern_init(PyObject *module);
int lacpy_device_init(PyObject *module);
int lacpy_device_array_init(PyObject *module);
int lacpy_mask_init(PyObject *module);
int lacpy_prune_init(PyObject *module);
int lacpy_calibration_init(PyObject *module);
int lacpy_weight_init(PyObject *module);
int lacpy_plan_init(PyObject *module);
int lacpy_file_init(PyObject *module);
int lacpy_writer_init(PyObject *module);
int lacpy_checkpoint_init(PyObject *module);
int lacpy_allocate_init(PyObject *module);
int lacpy_compile_init(PyObject *module);
/* Makes the type of `spec`, adds it and returns it; NULL with an exception. */
PyTypeObject *lacpy_type_add(PyObject *module, PyType_Spec *spec);
/* __copy__ and __deepcopy__ of what does not change: itself. */
PyObject *lacpy_itself(PyObject *self, PyObject *unused);
#define LACPY_COPIES                                                                                                           \
    {"__copy__", lacpy_itself, METH_NOARGS, "itself: it does not change"},                                                     \
    {                                                                                                                          \
        "__deepcopy__", lacpy_itself, METH_O, "itself: it does not change"                                                     \
    }

/* A function of the module or a method that takes keywords. */
#define LACPY_CALL(function, flags, text) (PyCFunction)(void (*)(void))(function), flags, text
#define LACPY_KEYWORDS                    (METH_VARARGS | METH_KEYWORDS)

#endif

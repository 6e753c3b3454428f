/* compile.c - compile_kernels(): fills the cache of compiled kernels ahead, on a machine without a GPU. */
#include "lacpy.h"

static const lacpy_field report_fields[] = {
    LACPY_FIELD(lac_compile_report, kernel, LACPY_TEXT, "the registry's name; 'timing' for what plans time kernels with", NULL),
    LACPY_FIELD(lac_compile_report, arch, LACPY_TEXT, "'sm_90a'", NULL),
    LACPY_FIELD(lac_compile_report, pattern, LACPY_TEXT, "its text", NULL),
    LACPY_FIELD(lac_compile_report, m, LACPY_INT64, "of the first problem that wants it", NULL),
    LACPY_FIELD(lac_compile_report, n, LACPY_INT64, "likewise", NULL),
    LACPY_FIELD(lac_compile_report, k, LACPY_INT64, "likewise", NULL),
    LACPY_FIELD(lac_compile_report, entry, LACPY_TEXT, "the function in it", NULL),
    LACPY_FIELD(lac_compile_report, found, LACPY_BOOL, "it lay in the cache already", NULL),
    LACPY_FIELD(lac_compile_report, registers, LACPY_INT32, "a thread", NULL),
    LACPY_FIELD(lac_compile_report, spill_bytes, LACPY_INT32, "a thread: what did not fit them", NULL),
    LACPY_FIELD(lac_compile_report, shared_bytes, LACPY_INT32, "a block, of fixed size", NULL),
    LACPY_FIELD(lac_compile_report, image_bytes, LACPY_UINT64, "compiled", NULL),
    LACPY_FIELD(lac_compile_report, seconds, LACPY_DOUBLE, "that it took", NULL),
    LACPY_FIELD(lac_compile_report, index, LACPY_INT64, "this is program index ...", NULL),
    LACPY_FIELD(lac_compile_report, total, LACPY_INT64, "... of total", NULL),
    LACPY_FIELD(lac_compile_report, stack_bytes, LACPY_INT32, "a thread", NULL),
    LACPY_FIELD(lac_compile_report, serialized, LACPY_BOOL, "its matrix products wait for each other; slow", NULL),
    {NULL, 0, 0, NULL, NULL}};

static const lacpy_field option_fields[] = {LACPY_FIELD(lac_kernels_compile_options, n, LACPY_INT64, "", NULL),
                                            LACPY_FIELD(lac_kernels_compile_options, k, LACPY_INT64, "", NULL),
                                            LACPY_FIELD(lac_kernels_compile_options, dtype, LACPY_DTYPE, "", NULL),
                                            {NULL, 0, 0, NULL, NULL}};

static PyTypeObject *report_record;

static int report(void *user, const lac_compile_report *program) { return lacpy_callback_report(user, program); }

/* What lac_kernels_compile_options points to. */
typedef struct held_options {
    lac_kernels_compile_options options;
    const char **archs;
    PyObject *archs_held, *folder, *plan_held;
    lac_pattern *patterns;
    int64_t *m;
    lac_plan_options plan;
    lacpy_callback on_program;
} held_options;

static void release(held_options *held)
{
    lacpy_callback_end(&held->on_program);
    PyMem_Free(held->archs);
    PyMem_Free(held->patterns);
    PyMem_Free(held->m);
    Py_XDECREF(held->archs_held);
    Py_XDECREF(held->folder);
    Py_XDECREF(held->plan_held);
}

/* m: an int or a sequence of them. */
static int read_m(held_options *held, PyObject *object)
{
    if (!object) return 0;
    PyObject *items = PyIndex_Check(object) ? PyTuple_Pack(1, object) : PySequence_Tuple(object);
    if (!items) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_Format(PyExc_TypeError, "m is %R; it must be an int or a sequence of int", object);
        return -1;
    }
    Py_ssize_t count = PyTuple_Size(items);
    held->m = PyMem_Calloc((size_t)(count ? count : 1), sizeof *held->m);
    int result = held->m ? 0 : (PyErr_NoMemory(), -1);
    for (Py_ssize_t i = 0; !result && i < count; i++)
        result = lacpy_integer("m", PyTuple_GetItem(items, i), INT64_MIN, INT64_MAX, &held->m[i]);
    Py_DECREF(items);
    held->options.m = held->m;
    held->options.m_count = (size_t)count;
    return result;
}

/* Those that are no numbers or enums, taken out of `rest`. */
static int read_objects(held_options *held, PyObject *const values[2], PyObject *rest)
{
    lac_kernels_compile_options *o = &held->options;
    PyObject *m = lacpy_take(rest, "m"), *plan = lacpy_take(rest, "plan"), *folder = lacpy_take(rest, "folder"),
             *function = lacpy_take(rest, "on_program");
    int result = lacpy_callback_begin(&held->on_program, "on_program", function, report_record, report_fields);
    if (!result) result = lacpy_texts("archs", values[0], &held->archs, &o->arch_count, &held->archs_held);
    if (!result) result = lacpy_patterns_of(values[1], "patterns", &held->patterns, &o->pattern_count);
    if (!result) result = read_m(held, m);
    if (!result) result = lacpy_plan_options_of(plan, "plan", &held->plan, &held->plan_held);
    if (!result && folder && !(held->folder = lacpy_path("folder", folder))) result = -1;
    o->archs = held->archs;
    o->patterns = held->patterns;
    o->plan = held->plan_held ? &held->plan : NULL;
    o->folder = held->folder ? PyBytes_AsString(held->folder) : NULL;
    o->on_program = report;
    o->user = &held->on_program;
    Py_XDECREF(m);
    Py_XDECREF(plan);
    Py_XDECREF(folder);
    Py_XDECREF(function);
    return result;
}

static PyObject *compile_kernels(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"archs", "patterns", NULL};
    (void)module;
    PyObject *values[2], *rest = NULL, *others = NULL, *result = NULL;
    if (lacpy_arguments("compile_kernels", args, kwargs, names, 2, values, &rest) < 0) return NULL;
    held_options held = {.options = {.size = sizeof held.options}};
    if (lacpy_fields_parse(option_fields, &held.options, "compile_kernels", rest, &others) == 0 &&
        read_objects(&held, values, others) == 0 && lacpy_none_left("compile_kernels", others) == 0) {
        lac_status status;
        Py_BEGIN_ALLOW_THREADS;
        status = lac_kernels_compile(&held.options);
        Py_END_ALLOW_THREADS;
        if (lacpy_callback_check(&held.on_program, status) == 0) result = Py_NewRef(held.on_program.reports);
    }
    release(&held);
    Py_XDECREF(others);
    Py_DECREF(rest);
    return result;
}

static PyMethodDef functions[] = {
    {"compile_kernels",
     LACPY_CALL(compile_kernels, LACPY_KEYWORDS,
                "compile_kernels(archs, patterns, *, n=4096, k=4096, m=(1, 8, 16, 64, 256, 4096), dtype='f32', plan=None, "
                "folder=None, on_program=None)\n--\n\nCompiles every program of every GPU kernel that applies, into the cache, "
                "and gives a CompileReport of each. Needs NVRTC and no GPU. plan is a dict of Plan's options; on_program is "
                "called after each program, and what it raises stops the call.")},
    {NULL, NULL, 0, NULL}};

int lacpy_compile_init(PyObject *module)
{
    report_record = lacpy_record_type(module, "lacuna.CompileReport", "A program that was compiled, or found.", report_fields);
    return report_record ? PyModule_AddFunctions(module, functions) : -1;
}

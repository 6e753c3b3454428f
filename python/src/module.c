/* module.c - lacuna._core: what the Python package is made of. lacuna/__init__.py shows it to users. */
#include <stdlib.h>
#include <string.h>

#include "lacpy.h"

lacpy_state lacpy;

PyTypeObject *lacpy_type_add(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    if (!type) return NULL;
    if (PyModule_AddObjectRef(module, strrchr(spec->name, '.') + 1, type) < 0) Py_CLEAR(type);
    return (PyTypeObject *)type; /* our own reference: types live as long as the process */
}

PyObject *lacpy_path(const char *name, PyObject *object)
{
    PyObject *bytes = NULL;
    if (PyUnicode_FSConverter(object, &bytes)) return bytes;
    if (PyErr_ExceptionMatches(PyExc_TypeError))
        PyErr_Format(PyExc_TypeError, "%s is %R; it must be a path: a str, bytes or os.PathLike", name, object);
    if (PyErr_ExceptionMatches(PyExc_ValueError))
        PyErr_Format(lacpy.errors[LAC_STATUS_INVALID_ARGUMENT], "%s is %R, which is no path", name, object);
    return NULL;
}

/* The object of a name that is one of a few. */
static PyObject *name_of(const char *name)
{
    static struct {
        const char *text;
        PyObject *object;
    } known[16];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!known[i].text && (known[i].object = PyUnicode_InternFromString(name))) known[i].text = name;
        if (!known[i].text) return NULL;
        if (!strcmp(known[i].text, name)) return Py_NewRef(known[i].object);
    }
    return PyUnicode_InternFromString(name);
}

PyObject *lacpy_get(PyObject *object, const char *name)
{
    PyObject *key = name_of(name), *value = key ? PyObject_GetAttr(object, key) : NULL;
    Py_XDECREF(key);
    return value;
}

int lacpy_has(PyObject *object, const char *name)
{
    PyObject *value = lacpy_get(object, name);
    if (!value && !lacpy_is_refusal()) return -1;
    if (!value) PyErr_Clear();
    Py_XDECREF(value);
    return value != NULL;
}

bool lacpy_is_refusal(void) { return PyErr_ExceptionMatches(PyExc_Exception) && !PyErr_ExceptionMatches(PyExc_MemoryError); }

PyObject *lacpy_itself(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(self);
}

/* What the C half wants of the package's Python half. */
static int find_helpers(void)
{
    PyObject *arrays = PyImport_ImportModule("lacuna._arrays");
    if (!arrays) return -1;
    const struct {
        const char *name;
        PyObject **place;
    } wanted[] = {{"adapt", &lacpy.adapt},
                  {"empty", &lacpy.empty},
                  {"current_stream", &lacpy.stream},
                  {"from_bytes", &lacpy.from_bytes},
                  {"ndarray", (PyObject **)&lacpy.ndarray}};
    int result = 0;
    for (size_t i = 0; !result && i < sizeof wanted / sizeof *wanted; i++)
        if (!(*wanted[i].place = PyObject_GetAttrString(arrays, wanted[i].name))) result = -1;
    Py_DECREF(arrays);
    return result;
}

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "lacuna._core", .m_doc = "The objects and calls of lacuna.h.", .m_size = -1};

PyMODINIT_FUNC PyInit__core(void)
{
    static int (*const parts[])(PyObject *) = {
        lacpy_errors_init, lacpy_pattern_init,     lacpy_device_init,   lacpy_device_array_init, lacpy_mask_init,
        lacpy_prune_init,  lacpy_calibration_init, lacpy_weight_init,   lacpy_plan_init,         lacpy_file_init,
        lacpy_writer_init, lacpy_checkpoint_init,  lacpy_allocate_init, lacpy_compile_init};
    static const struct {
        const char *name;
        long value;
    } limits[] = {{"MAX_DIMENSION", LAC_MAX_DIMENSION}, {"MAX_GROUP", LAC_MAX_GROUP}, {"MAX_RANK", LAC_MAX_RANK}};
    PyObject *module = PyModule_Create(&definition);
    int result = module ? find_helpers() : -1;
    for (size_t i = 0; !result && i < sizeof parts / sizeof *parts; i++) result = parts[i](module);
    for (size_t i = 0; !result && i < sizeof limits / sizeof *limits; i++)
        result = PyModule_AddIntConstant(module, limits[i].name, limits[i].value);
    if (!result) result = PyModule_AddStringConstant(module, "__version__", lac_version());
    if (result < 0) Py_CLEAR(module);
    return module;
}

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

PyObject *lacpy_path(PyObject *object)
{
    PyObject *bytes = NULL;
    return PyUnicode_FSConverter(object, &bytes) ? bytes : NULL;
}

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT, .m_name = "lacuna._core", .m_doc = "The objects and calls of lacuna.h.", .m_size = -1};

PyMODINIT_FUNC PyInit__core(void)
{
    static int (*const parts[])(PyObject *) = {lacpy_errors_init,       lacpy_pattern_init, lacpy_device_init,
                                               lacpy_device_array_init, lacpy_mask_init,    lacpy_calibration_init,
                                               lacpy_weight_init,       lacpy_plan_init,    lacpy_file_init,
                                               lacpy_checkpoint_init,   lacpy_compile_init};
    PyObject *module = PyModule_Create(&definition), *arrays = PyImport_ImportModule("lacuna._arrays");
    int result = module && arrays ? 0 : -1;
    if (!result && !(lacpy.adapt = PyObject_GetAttrString(arrays, "adapt"))) result = -1;
    if (!result && !(lacpy.empty = PyObject_GetAttrString(arrays, "empty"))) result = -1;
    for (size_t i = 0; !result && i < sizeof parts / sizeof *parts; i++) result = parts[i](module);
    if (!result) result = PyModule_AddStringConstant(module, "__version__", lac_version());
    Py_XDECREF(arrays);
    if (result < 0) Py_CLEAR(module);
    return module;
}

/* device.c - Device, and what the machine has: devices, components, kernels. */
#include <stdlib.h>
#include <string.h>

#include "lacpy.h"

static const lacpy_field device_fields[] = {
    LACPY_FIELD(lac_device_info, kind, LACPY_ENUM, "'cpu' or 'cuda'", lacpy_device_kinds),
    LACPY_FIELD(lac_device_info, name, LACPY_CHARS, "what Device() takes: 'cpu', 'cuda:0'", NULL),
    LACPY_FIELD(lac_device_info, model, LACPY_CHARS, "as the maker calls it", NULL),
    LACPY_FIELD(lac_device_info, available, LACPY_BOOL, "False: seen but not usable, see note", NULL),
    LACPY_FIELD(lac_device_info, note, LACPY_CHARS, "what was found where, or what is missing", NULL),
    LACPY_FIELD(lac_device_info, cores, LACPY_INT32, "that this process may use; multiprocessors of a GPU", NULL),
    LACPY_FIELD(lac_device_info, vector_unit, LACPY_CHARS, "'scalar', 'avx2', 'avx512', 'neon'; 'sm_90'", NULL),
    LACPY_FIELD(lac_device_info, memory_bytes, LACPY_UINT64, "of memory", NULL),
    LACPY_FIELD(lac_device_info, l1_bytes, LACPY_UINT64, "of the first data cache; 0: unknown", NULL),
    LACPY_FIELD(lac_device_info, l2_bytes, LACPY_UINT64, "of the second; 0: unknown", NULL),
    LACPY_FIELD(lac_device_info, l3_bytes, LACPY_UINT64, "of the third; 0: unknown", NULL),
    {NULL, 0, 0, NULL, NULL}};

static const lacpy_field component_fields[] = {
    LACPY_FIELD(lac_component_info, name, LACPY_CHARS, "'libcuda', 'libnvrtc', 'kernel cache', ...", NULL),
    LACPY_FIELD(lac_component_info, available, LACPY_BOOL, "False: not found or not usable, see note", NULL),
    LACPY_FIELD(lac_component_info, version, LACPY_CHARS, "'' when it has none", NULL),
    LACPY_FIELD(lac_component_info, path, LACPY_CHARS, "where it was found", NULL),
    LACPY_FIELD(lac_component_info, note, LACPY_CHARS, "what is missing, where it was looked for, what it means", NULL),
    {NULL, 0, 0, NULL, NULL}};

/* The bits of a kernel's sets: 1 << the enum's value. */
static const lacpy_name family_bits[] = {{"element", 1 << LAC_FAMILY_ELEMENT},   {"vector", 1 << LAC_FAMILY_VECTOR},
                                         {"block", 1 << LAC_FAMILY_BLOCK},       {"vnm", 1 << LAC_FAMILY_VNM},
                                         {"shuffled", 1 << LAC_FAMILY_SHUFFLED}, {NULL, 0}};
static const lacpy_name dtype_bits[] = {
    {"f32", 1 << LAC_DTYPE_F32}, {"f16", 1 << LAC_DTYPE_F16}, {"bf16", 1 << LAC_DTYPE_BF16}, {NULL, 0}};

static const lacpy_field kernel_fields[] = {
    LACPY_FIELD(lac_kernel_info, name, LACPY_TEXT, "what Plan(kernel=...) takes", NULL),
    LACPY_FIELD(lac_kernel_info, device, LACPY_ENUM, "'cpu' or 'cuda'", lacpy_device_kinds),
    LACPY_FIELD(lac_kernel_info, is_dense, LACPY_BOOL, "it ignores the sparsity", NULL),
    LACPY_FIELD(lac_kernel_info, summary, LACPY_TEXT, "the dataflow in a line", NULL),
    LACPY_FIELD(lac_kernel_info, families, LACPY_FLAGS, "of patterns that it knows", family_bits),
    LACPY_FIELD(lac_kernel_info, weight_dtypes, LACPY_FLAGS, "of weights that it takes", dtype_bits),
    LACPY_FIELD(lac_kernel_info, x_dtypes, LACPY_FLAGS, "of activations that it takes", dtype_bits),
    LACPY_FIELD(lac_kernel_info, y_dtypes, LACPY_FLAGS, "of outputs that it writes", dtype_bits),
    {NULL, 0, 0, NULL, NULL}};

static PyTypeObject *device_record, *component_record, *kernel_record;

/* ---- lists */

/* A list of records: `probe` fills `info` with the index-th thing, and gives NOT_FOUND past the end. */
static PyObject *list_of(lac_status (*probe)(size_t index, void *info), void *info, PyTypeObject *type,
                         const lacpy_field *fields)
{
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list; i++) {
        lac_status status;
        Py_BEGIN_ALLOW_THREADS;
        status = probe(i, info);
        Py_END_ALLOW_THREADS;
        if (status == LAC_STATUS_NOT_FOUND) break;
        PyObject *record = status == LAC_STATUS_OK ? lacpy_record(type, fields, info) : lacpy_raise(status);
        if (!record || PyList_Append(list, record) < 0) Py_CLEAR(list);
        Py_XDECREF(record);
    }
    if (list && lacpy_log_deliver() < 0) Py_CLEAR(list);
    return list;
}

static lac_status probe_device(size_t index, void *info) { return lac_device_probe(index, info); }
static lac_status probe_component(size_t index, void *info) { return lac_component_probe(index, info); }
static lac_status probe_kernel(size_t index, void *info) { return lac_kernel_probe(index, info); }

static PyObject *devices(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    lac_device_info info = {.size = sizeof info};
    return list_of(probe_device, &info, device_record, device_fields);
}

static PyObject *components(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    lac_component_info info = {.size = sizeof info};
    return list_of(probe_component, &info, component_record, component_fields);
}

static PyObject *kernels(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    lac_kernel_info info = {.size = sizeof info};
    return list_of(probe_kernel, &info, kernel_record, kernel_fields);
}

/* ---- Device */

static lacpy_device *open_device(const char *name)
{
    lacpy_device *self = PyObject_New(lacpy_device, lacpy.device);
    if (!self) return NULL;
    self->device = NULL;
    self->info = (lac_device_info){.size = sizeof self->info};
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_device_open(name, &self->device);
    if (status == LAC_STATUS_OK) status = lac_device_get_info(self->device, &self->info);
    Py_END_ALLOW_THREADS;
    if (lacpy_check(status) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    const char *colon = strchr(self->info.name, ':');
    self->gpu = self->info.kind == LAC_DEVICE_KIND_CPU ? -1 : colon ? atoi(colon + 1) : 0;
    return self;
}

lacpy_device *lacpy_device_of(PyObject *object)
{
    if (object && PyObject_TypeCheck(object, lacpy.device)) return (lacpy_device *)Py_NewRef(object);
    if (!object || object == Py_None) return open_device("auto");
    /* also PyTorch's devices, whose text is such a name */
    PyObject *text = PyUnicode_Check(object) ? Py_NewRef(object) : NULL;
    if (!text && lacpy_has(object, "index") > 0 && lacpy_has(object, "type") > 0) text = PyObject_Str(object);
    if (!text) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "device is %R; it must be a Device or a name such as 'cpu' or 'cuda:0'", object);
        return NULL;
    }
    const char *name = lacpy_text("device", text);
    if (name && !strcmp(name, "cuda")) name = "cuda:0";
    lacpy_device *device = name ? open_device(name) : NULL;
    Py_DECREF(text);
    return device;
}

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"name", NULL};
    PyObject *name;
    (void)type;
    if (lacpy_arguments("Device", args, kwargs, names, 0, &name, NULL) < 0) return NULL;
    return (PyObject *)lacpy_device_of(name);
}

static void destroy(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_BEGIN_ALLOW_THREADS; /* the last of a GPU's waits for what was put on it */
    lac_device_close(((lacpy_device *)self)->device);
    Py_END_ALLOW_THREADS;
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *represent(PyObject *self)
{
    const lac_device_info *info = &((lacpy_device *)self)->info;
    return PyUnicode_FromFormat("<lacuna.Device '%s': %s, %s>", info->name, info->model, info->vector_unit);
}

static PyObject *get_field(PyObject *self, void *field) { return lacpy_field_get(field, &((lacpy_device *)self)->info); }

static PyObject *synchronize(PyObject *self, PyObject *unused)
{
    (void)unused;
    lac_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = lac_device_synchronize(((lacpy_device *)self)->device);
    Py_END_ALLOW_THREADS;
    if (lacpy_check(status) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_BuildValue("O(s)", lacpy.device, ((lacpy_device *)self)->info.name);
}

static PyMethodDef methods[] = {
    {"synchronize", synchronize, METH_NOARGS,
     "synchronize()\n--\n\nWaits until everything that was put on the device is done. A kernel that failed says so here."},
    LACPY_COPIES,
    {"__reduce__", reduce, METH_NOARGS, "for pickle: by its name"},
    {NULL, NULL, 0, NULL}};

static PyMethodDef functions[] = {
    {"devices", devices, METH_NOARGS, "devices()\n--\n\nThe devices of this machine, usable or not."},
    {"components", components, METH_NOARGS,
     "components()\n--\n\nWhat is looked for when Lacuna runs, and may be missing: a driver, a compiler, a place for compiled "
     "kernels."},
    {"kernels", kernels, METH_NOARGS, "kernels()\n--\n\nThe kernels that the planner chooses among."},
    {NULL, NULL, 0, NULL}};

int lacpy_device_init(PyObject *module)
{
    device_record = lacpy_record_type(module, "lacuna.DeviceInfo", "A device of this machine.", device_fields);
    component_record =
        lacpy_record_type(module, "lacuna.ComponentInfo", "Something that Lacuna looks for when it runs.", component_fields);
    kernel_record = lacpy_record_type(module, "lacuna.KernelInfo", "A kernel of the registry.", kernel_fields);
    PyGetSetDef *attributes = lacpy_attributes(device_fields, get_field, NULL);
    if (!device_record || !component_record || !kernel_record || !attributes) return -1;
    PyType_Slot slots[] = {
        {Py_tp_doc,
         "Device(name='auto')\n--\n\nA CPU or a GPU: 'auto' (the fastest usable one), 'cpu', 'cuda:0'. One that is not "
         "here, 'h200' or an architecture such as 'sm_90a', opens for plans that predict only."},
        {Py_tp_new, make},
        {Py_tp_dealloc, destroy},
        {Py_tp_repr, represent},
        {Py_tp_methods, methods},
        {Py_tp_getset, attributes},
        {0, NULL}};
    PyType_Spec spec = {.name = "lacuna.Device",
                        .basicsize = sizeof(lacpy_device),
                        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                        .slots = slots};
    if (!(lacpy.device = lacpy_type_add(module, &spec))) return -1;
    return PyModule_AddFunctions(module, functions);
}

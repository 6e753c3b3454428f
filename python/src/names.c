/* names.c - the enums of lacuna.h as Python writes them: short texts. One table each, for what goes in and what comes out. */
#include <string.h>

#include "lacpy.h"

const lacpy_name lacpy_families[] = {{"element", LAC_FAMILY_ELEMENT},   {"vector", LAC_FAMILY_VECTOR},
                                     {"block", LAC_FAMILY_BLOCK},       {"vnm", LAC_FAMILY_VNM},
                                     {"shuffled", LAC_FAMILY_SHUFFLED}, {NULL, 0}};
const lacpy_name lacpy_scores[] = {{"l1", LAC_SCORE_L1}, {"l2", LAC_SCORE_L2}, {NULL, 0}};
const lacpy_name lacpy_methods[] = {{"magnitude", LAC_METHOD_MAGNITUDE},
                                    {"wanda", LAC_METHOD_WANDA},
                                    {"obs", LAC_METHOD_OBS},
                                    {"fisher", LAC_METHOD_FISHER},
                                    {NULL, 0}};
const lacpy_name lacpy_encodings[] = {{"auto", LAC_INDEX_ENCODING_AUTO},       {"implicit", LAC_INDEX_ENCODING_IMPLICIT},
                                      {"packed", LAC_INDEX_ENCODING_PACKED},   {"bitmask", LAC_INDEX_ENCODING_BITMASK},
                                      {"columns", LAC_INDEX_ENCODING_COLUMNS}, {NULL, 0}};
const lacpy_name lacpy_overflows[] = {{"error", LAC_OVERFLOW_ERROR}, {"saturate", LAC_OVERFLOW_SATURATE}, {NULL, 0}};
const lacpy_name lacpy_layouts[] = {{"token", LAC_LAYOUT_TOKEN_MAJOR}, {"feature", LAC_LAYOUT_FEATURE_MAJOR}, {NULL, 0}};
const lacpy_name lacpy_activations[] = {{"none", LAC_ACTIVATION_NONE},     {"relu", LAC_ACTIVATION_RELU},
                                        {"gelu", LAC_ACTIVATION_GELU_ERF}, {"gelu_tanh", LAC_ACTIVATION_GELU_TANH},
                                        {"silu", LAC_ACTIVATION_SILU},     {NULL, 0}};
const lacpy_name lacpy_precisions[] = {{"default", LAC_PRECISION_DEFAULT},
                                       {"strict", LAC_PRECISION_STRICT},
                                       {"fast", LAC_PRECISION_FAST},
                                       {"tf32", LAC_PRECISION_TF32},
                                       {NULL, 0}};
const lacpy_name lacpy_device_kinds[] = {{"cpu", LAC_DEVICE_KIND_CPU}, {"cuda", LAC_DEVICE_KIND_CUDA}, {NULL, 0}};
const lacpy_name lacpy_file_formats[] = {
    {"safetensors", LAC_FILE_FORMAT_SAFETENSORS}, {"npy", LAC_FILE_FORMAT_NPY}, {"smtx", LAC_FILE_FORMAT_SMTX}, {NULL, 0}};
const lacpy_name lacpy_resumes[] = {{"no", LAC_RESUME_NO}, {"yes", LAC_RESUME_YES}, {"restart", LAC_RESUME_RESTART}, {NULL, 0}};
const lacpy_name lacpy_budgets[] = {{"speedup", LAC_BUDGET_SPEEDUP}, {"density", LAC_BUDGET_DENSITY}, {NULL, 0}};
const lacpy_name lacpy_axes[] = {{"n", LAC_AXIS_N}, {"k", LAC_AXIS_K}, {NULL, 0}};
const lacpy_name lacpy_permutations[] = {{"rows", LAC_PERMUTE_ROWS}, {"columns", LAC_PERMUTE_COLUMNS}, {NULL, 0}};
const lacpy_name lacpy_parts[] = {
    {"values", LAC_PART_VALUES},     {"index", LAC_PART_INDEX},     {"positions", LAC_PART_POSITIONS},
    {"counts", LAC_PART_COUNTS},     {"columns", LAC_PART_COLUMNS}, {"row_perm", LAC_PART_ROW_PERM},
    {"col_perm", LAC_PART_COL_PERM}, {"scales", LAC_PART_SCALES},   {NULL, 0}};

/* "'a', 'b' or 'c'" into a new str. */
static PyObject *list_of(const lacpy_name *names)
{
    PyObject *list = PyUnicode_FromString("");
    for (const lacpy_name *name = names; list && name->text; name++) {
        const char *between = name == names ? "" : name[1].text ? ", " : " or ";
        PyObject *longer = PyUnicode_FromFormat("%U%s'%s'", list, between, name->text);
        Py_DECREF(list);
        list = longer;
    }
    return list;
}

int lacpy_name_parse(const lacpy_name *names, const char *what, PyObject *text, int *out)
{
    if (PyUnicode_Check(text)) {
        for (const lacpy_name *name = names; name->text; name++) {
            if (PyUnicode_CompareWithASCIIString(text, name->text) != 0) continue;
            *out = name->value;
            return 0;
        }
    }
    PyObject *list = list_of(names);
    if (list)
        PyErr_Format(PyUnicode_Check(text) ? lacpy.errors[LAC_STATUS_INVALID_ARGUMENT] : PyExc_TypeError,
                     "%s is %R; it must be %U", what, text, list);
    Py_XDECREF(list);
    return -1;
}

PyObject *lacpy_name_text(const lacpy_name *names, int value)
{
    for (; names->text; names++)
        if (names->value == value) return PyUnicode_FromString(names->text);
    return PyUnicode_FromString("");
}

/* What stands behind the last dot: "bfloat16" of "torch.bfloat16". */
static const char *last_word(const char *text)
{
    const char *dot = strrchr(text, '.');
    return dot ? dot + 1 : text;
}

int lacpy_dtype_parse(const char *what, PyObject *object, lac_dtype *out)
{
    /* numpy's dtypes have a name, its scalar types a __name__, PyTorch's are written "torch.float16". */
    bool is_text = PyUnicode_Check(object);
    PyObject *text = NULL;
    if (is_text) {
        text = Py_NewRef(object);
    } else {
        static const char *const attributes[] = {"name", "__name__"};
        for (int i = 0; i < 2 && !text; i++) {
            text = lacpy_get(object, attributes[i]);
            if (!text && !lacpy_is_refusal()) return -1;
            if (!text) PyErr_Clear();
        }
        if (!text) text = PyObject_Str(object);
    }
    Py_ssize_t length = 0;
    const char *bytes = text && PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, &length) : NULL;
    if (bytes && (Py_ssize_t)strlen(bytes) == length &&
        lac_dtype_parse(is_text ? bytes : last_word(bytes), out) == LAC_STATUS_OK &&
        lac_dtype_size(*out) > 1) { /* those of one byte are reserved */
        Py_DECREF(text);
        return 0;
    }
    Py_XDECREF(text);
    if (!PyErr_Occurred())
        PyErr_Format(is_text ? lacpy.errors[LAC_STATUS_INVALID_ARGUMENT] : PyExc_TypeError,
                     "%s is %R; it must be 'f32', 'f16', 'bf16', 'f64' or a dtype that means one of these", what, object);
    return -1;
}

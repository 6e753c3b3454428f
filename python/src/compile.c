#include "lacpy.h"
int lacpy_compile_init(PyObject *module)
{
    (void)module;
    return 0;
}

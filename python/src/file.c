#include "lacpy.h"
int lacpy_file_init(PyObject *module)
{
    (void)module;
    return 0;
}

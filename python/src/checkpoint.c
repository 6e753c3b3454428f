#include "lacpy.h"
int lacpy_checkpoint_init(PyObject *module)
{
    (void)module;
    return 0;
}

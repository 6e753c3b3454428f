/* plan.h - what plan.c, which makes plans, and plan_call.c, which calls them, share. */
#ifndef LACPY_PLAN_H
#define LACPY_PLAN_H

#include "lacpy.h"

/* Scratch memory that calls need. What one call has, no other may use at the same time; on a GPU, where a call's work goes on after it returns, the next
 * on the same stream may. */
typedef struct lacpy_slot {
    void *block, *stream;
    bool busy;
} lacpy_slot;

typedef struct lacpy_plan {
    PyObject_HEAD;
    lac_plan *plan;
    lac_plan_info info;
    lac_plan_options options; /* dtypes as they were resolved */
    lacpy_device *device;
    lac_weight *weight; /* a holder of its own: a cache of plans by Weight objects must not keep these alive */
    lacpy_slot *slots;
    int slot_count;
} lacpy_plan;

PyObject *lacpy_plan_run(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *lacpy_plan_execute_pointers(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *lacpy_plan_reference(PyObject *self, PyObject *args, PyObject *kwargs);

#endif

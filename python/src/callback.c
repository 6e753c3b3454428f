/* callback.c - what long calls report: each report is a record, which a list keeps and a callable may look at. An exception that the callable raises, and a
 * signal's such as KeyboardInterrupt, stops the call and comes out of it as it is. */
#include "lacpy.h"

int lacpy_callback_begin(lacpy_callback *self, const char *name, PyObject *function, PyTypeObject *record,
                         const lacpy_field *fields)
{
    *self = (lacpy_callback){.record = record, .fields = fields};
    if (function && function != Py_None && !PyCallable_Check(function)) {
        PyErr_Format(PyExc_TypeError, "%s is %R; it must be callable", name, function);
        return -1;
    }
    if (!(self->reports = PyList_New(0))) return -1;
    if (function && function != Py_None) self->function = Py_NewRef(function);
    return 0;
}

int lacpy_callback_report(lacpy_callback *self, const void *report)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *record = lacpy_record(self->record, self->fields, report), *said = NULL;
    if (record && PyList_Append(self->reports, record) == 0)
        said = self->function ? PyObject_CallFunctionObjArgs(self->function, record, NULL) : Py_NewRef(Py_None);
    int stop = !said || PyErr_CheckSignals() < 0 || lacpy_log_deliver() < 0;
    if (stop) PyErr_Fetch(&self->type, &self->value, &self->traceback);
    Py_XDECREF(said);
    Py_XDECREF(record);
    PyGILState_Release(state);
    return stop;
}

int lacpy_callback_check(lacpy_callback *self, lac_status status)
{
    if (!self->type) return lacpy_check(status);
    if (lacpy_log_deliver() < 0) PyErr_Clear();
    PyErr_Restore(self->type, self->value, self->traceback);
    self->type = self->value = self->traceback = NULL;
    return -1;
}

void lacpy_callback_end(lacpy_callback *self)
{
    Py_CLEAR(self->function);
    Py_CLEAR(self->reports);
    Py_CLEAR(self->type);
    Py_CLEAR(self->value);
    Py_CLEAR(self->traceback);
}

/* errors.c - statuses as exceptions of lacuna.errors, and what Lacuna logs as records of Python's logging. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "lacpy.h"

/* Messages that wait for a moment at which Python may be entered. The oldest are kept when there are too many. */
enum { MOST_MESSAGES = 256 };
typedef struct message {
    lac_log_level level;
    char *text;
} message;
static struct {
    pthread_mutex_t lock;
    int count, dropped;
    message list[MOST_MESSAGES];
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void keep(void *user, lac_log_level level, const char *text)
{
    (void)user;
    char *copy = strdup(text);
    pthread_mutex_lock(&kept.lock);
    if (copy && kept.count < MOST_MESSAGES)
        kept.list[kept.count++] = (message){level, copy};
    else
        free(copy), kept.dropped++;
    pthread_mutex_unlock(&kept.lock);
}

/* A child has one thread, and the lock may have been another's. */
static void lock_all(void) { pthread_mutex_lock(&kept.lock); }
static void unlock_all(void) { pthread_mutex_unlock(&kept.lock); }

/* A file's name in it may be no UTF-8, and what is too long was cut, perhaps within a letter. */
static PyObject *say(const message *it)
{
    static const int levels[] = {[LAC_LOG_LEVEL_WARNING] = 30, [LAC_LOG_LEVEL_INFO] = 20, [LAC_LOG_LEVEL_DEBUG] = 10};
    PyObject *text = PyUnicode_DecodeUTF8(it->text, (Py_ssize_t)strlen(it->text), "backslashreplace");
    PyObject *said = text ? PyObject_CallFunction(lacpy.log, "isO", levels[it->level], "%s", text) : NULL;
    Py_XDECREF(text);
    return said;
}

int lacpy_log_deliver(void)
{
    int result = 0;
    for (bool more = true; more;) {
        message next = {0};
        int dropped = 0;
        pthread_mutex_lock(&kept.lock);
        if ((more = kept.count > 0)) {
            next = kept.list[0];
            memmove(kept.list, kept.list + 1, (size_t)--kept.count * sizeof *kept.list);
        } else {
            dropped = kept.dropped;
            kept.dropped = 0;
        }
        pthread_mutex_unlock(&kept.lock);
        PyObject *said = NULL;
        if (next.text && !result)
            said = say(&next);
        else if (dropped && !result)
            said = PyObject_CallFunction(lacpy.log, "isi", 30, "%d more messages were dropped", dropped);
        else
            said = Py_NewRef(Py_None);
        if (!said) result = -1;
        Py_XDECREF(said);
        free(next.text);
    }
    return result;
}

PyObject *lacpy_raise(lac_status status)
{
    const char *text = lac_last_error();
    int known = status > LAC_STATUS_OK && status <= LAC_STATUS_INTERNAL;
    PyObject *said = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "surrogateescape");
    if (said) PyErr_SetObject(lacpy.errors[known ? status : LAC_STATUS_INTERNAL], said);
    Py_XDECREF(said);
    return NULL;
}

int lacpy_check(lac_status status)
{
    if (status != LAC_STATUS_OK) { /* the exception is what counts: messages wait, since a handler might raise its own */
        lacpy_raise(status);
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        if (lacpy_log_deliver() < 0) PyErr_Clear();
        PyErr_Restore(type, value, traceback);
        return -1;
    }
    return lacpy_log_deliver();
}

/* set_log_level(level): what is handed to logging.getLogger("lacuna"). */
static PyObject *set_log_level(PyObject *module, PyObject *level)
{
    static const lacpy_name levels[] = {{"none", 0},
                                        {"warning", LAC_LOG_LEVEL_WARNING},
                                        {"info", LAC_LOG_LEVEL_INFO},
                                        {"debug", LAC_LOG_LEVEL_DEBUG},
                                        {NULL, 0}};
    (void)module;
    int value = 0;
    if (lacpy_name_parse(levels, "level", level, &value) < 0) return NULL;
    lac_set_log(value ? keep : NULL, NULL, value ? (lac_log_level)value : LAC_LOG_LEVEL_WARNING);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {{"set_log_level", set_log_level, METH_O,
                                   "set_log_level(level)\n--\n\nWhat Lacuna says to logging.getLogger('lacuna'): 'none', "
                                   "'warning' (the default), 'info' or 'debug'."},
                                  {NULL, NULL, 0, NULL}};

int lacpy_errors_init(PyObject *module)
{
    static const char *const names[] = {[LAC_STATUS_INVALID_ARGUMENT] = "InvalidArgument",
                                        [LAC_STATUS_OUT_OF_MEMORY] = "OutOfMemory",
                                        [LAC_STATUS_IO] = "InputOutput",
                                        [LAC_STATUS_BAD_FILE] = "BadFile",
                                        [LAC_STATUS_NOT_FOUND] = "NotFound",
                                        [LAC_STATUS_PATTERN_VIOLATED] = "PatternViolated",
                                        [LAC_STATUS_VALUE_OUT_OF_RANGE] = "ValueOutOfRange",
                                        [LAC_STATUS_UNSUPPORTED] = "Unsupported",
                                        [LAC_STATUS_DEVICE] = "DeviceFailure",
                                        [LAC_STATUS_CANCELLED] = "Cancelled",
                                        [LAC_STATUS_INTERNAL] = "Internal"};
    PyObject *errors = PyImport_ImportModule("lacuna.errors"), *logging = NULL, *logger = NULL;
    for (int i = 1; errors && i <= LAC_STATUS_INTERNAL; i++) {
        lacpy.errors[i] = PyObject_GetAttrString(errors, names[i]);
        if (!lacpy.errors[i]) Py_CLEAR(errors);
    }
    if (errors) logging = PyImport_ImportModule("logging");
    if (logging) logger = PyObject_CallMethod(logging, "getLogger", "s", "lacuna");
    if (logger) lacpy.log = PyObject_GetAttrString(logger, "log");
    Py_XDECREF(errors);
    Py_XDECREF(logging);
    Py_XDECREF(logger);
    if (!lacpy.log || PyModule_AddFunctions(module, functions) < 0) return -1;
    pthread_atfork(lock_all, unlock_all, unlock_all);
    lac_set_log(keep, NULL, LAC_LOG_LEVEL_WARNING);
    return 0;
}

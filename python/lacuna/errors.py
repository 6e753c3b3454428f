"""What Lacuna raises. Each error says in its text which argument was wrong and what its value was.

Every one is an Error; most are also the built-in exception that a Python programmer would look for.
"""


class Error(Exception):
    """Anything that Lacuna refuses or fails at."""


class InvalidArgument(Error, ValueError):
    """An argument is wrong by itself."""


class OutOfMemory(Error, MemoryError):
    """The host's memory or the device's."""


class InputOutput(Error, OSError):
    """The operating system refused to open, read, write or rename a file."""


class BadFile(Error, ValueError):
    """The file's bytes break the rules of its format."""


class NotFound(Error, LookupError):
    """No such tensor, kernel or device."""


class PatternViolated(Error, ValueError):
    """The matrix or mask does not obey the pattern."""


class ValueOutOfRange(Error, ValueError):
    """A value does not fit the dtype it is to be stored in."""


class Unsupported(Error, NotImplementedError):
    """A sound request that this build or device cannot serve."""


class DeviceFailure(Error, RuntimeError):
    """The device or its driver failed."""


class Cancelled(Error):
    """A progress callback asked to stop."""


class Internal(Error, RuntimeError):
    """A defect in Lacuna."""

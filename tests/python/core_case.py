"""core_case.py - what the tests of lacuna._core share: random weights of every family, 16-bit floats without numpy's help, and arrays
that lend themselves by DLPack with whatever in the capsule a test wants.

Random data come from a fixed seed, which LAC_TEST_SEED replaces; a failure prints it.
"""

import ctypes
import os
import shutil
import sys
import tempfile
import unittest
import unittest.mock

import numpy as np

import lacuna

SEED = int(os.environ.get("LAC_TEST_SEED", "20260"))
PATTERNS = ["2:4", "1:8", "3:5", "25%", "vw4:2:8", "vw8:25%", "bw2x4:1:2", "bw4x4:25%", "16:2:8", "shfl8:25%"]
FAMILIES = {"element": "2:4", "vector": "vw4:2:8", "block": "bw2x4:1:2", "vnm": "16:2:8", "shuffled": "shfl8:25%"}
ROUNDOFF = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}


def to_bf16(values):
    """The 16 upper bits of the nearest bfloat16, ties to even; no NaN."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def without_ml_dtypes():
    """As where the package is not installed: importing it fails."""
    return unittest.mock.patch.dict(sys.modules, {"ml_dtypes": None})


class Case(unittest.TestCase):
    def setUp(self):
        self.random = np.random.default_rng(SEED)
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        self.folder = folder

    def path(self, name):
        return os.path.join(self.folder, name)

    def normal(self, *shape, dtype=np.float32):
        return self.random.standard_normal(shape).astype(dtype)

    def refuses(self, kind, says, call, *args, **kwargs):
        """The call raises exactly this kind of exception, and its text has each of `says` in it. A ValueError is always Lacuna's own."""
        kind = lacuna.errors.InvalidArgument if kind is ValueError else kind
        with self.assertRaises(kind) as caught:
            call(*args, **kwargs)
        self.assertIs(type(caught.exception), kind, caught.exception)
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, str(caught.exception))
        return caught.exception

    def within(self, y, want, bound, what=""):
        """Element by element; what is not finite must be the same."""
        y = np.asarray(y, np.float64)
        self.assertEqual(y.shape, want.shape)
        bad = ~((np.abs(y - want) <= bound) | (np.isnan(y) & np.isnan(want)) | (y == want))
        if bad.any():
            at = tuple(np.argwhere(bad)[0])
            self.fail(f"{what} seed {SEED}: element {at} is {y[at]!r}, wanted {want[at]!r} within {bound[at]!r}; {bad.sum()} are out")


# ---- DLPack by hand


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_number", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("owner", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("owner", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_DESTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, _DESTRUCTOR]
_valid = ctypes.pythonapi.PyCapsule_IsValid
_valid.restype, _valid.argtypes = ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p]
CODES = {"f": 2, "i": 0, "u": 1}


class Lender:
    """A numpy array that gives no buffer, but a capsule, in which `odd` may replace any field of the tensor.

    `given` and `taken_back` count capsules; `asked` keeps the keywords of the last call. `version` is None for the form before version 1.
    """

    def __init__(self, array, version=None, flags=0, name=None, knows_version=True, **odd):
        self.array, self.version, self.flags, self.odd, self.name, self.knows_version = array, version, flags, odd, name, knows_version
        self.given = self.taken_back = 0
        self.asked, self._kept, self._spent = {}, [], []
        self.device = (odd.get("device_type", 1), odd.get("device_number", 0))

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **keywords):
        if not self.knows_version and "max_version" in keywords:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        self.asked = keywords
        a = self.array
        numbers = ctypes.c_int64 * max(a.ndim, 1)
        tensor = _Tensor(
            a.ctypes.data,
            1,
            0,
            a.ndim,
            CODES[a.dtype.kind],
            a.dtype.itemsize * 8,
            1,
            numbers(*a.shape),
            numbers(*[s // a.itemsize for s in a.strides]),
            0,
        )
        for field, value in self.odd.items():
            setattr(tensor, field, numbers(*value) if isinstance(value, tuple) else value)
        block = _Managed(tensor, None, None) if self.version is None else _Versioned(*self.version, None, None, self.flags, tensor)
        name = self.name or (b"dltensor" if self.version is None else b"dltensor_versioned")

        def destroy(capsule):
            if _valid(capsule, name):
                self.taken_back += 1
            self._spent.append(kept)  # but not this function itself, while it runs

        destructor = _DESTRUCTOR(destroy)
        kept = (block, tensor, name, destructor)
        self._kept = [k for k in self._kept if k not in self._spent] + [kept]
        self._spent.clear()
        self.given += 1
        return _new(ctypes.addressof(block), name, destructor)


def lend_bf16(bits, **more):
    """uint16 bits as an array of bfloat16."""
    return Lender(bits, code=4, **more)


def compressed(values, pattern, dtype="f32", **options):
    """(Weight, its dense values in float64)"""
    weight = lacuna.compress(values, pattern, dtype=dtype, **options)
    return weight, weight.dense("f64")


class _Mallinfo(ctypes.Structure):
    _fields_ = [(n, ctypes.c_size_t) for n in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]


def allocated():
    """Bytes that malloc has handed out and not got back, by its own count; what numpy and Python hold is in it."""
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _Mallinfo
    info = libc.mallinfo2()
    return info.uordblks + info.hblkhd


def attempt(call, *args, **kwargs):
    try:
        return call(*args, **kwargs)
    except Exception:
        return None


def main():
    unittest.main(verbosity=1)

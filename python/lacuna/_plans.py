"""Plans kept for those who only say what to multiply: lacuna.matmul() and lacuna.torch.

A plan is made for one number of tokens m and holds a copy of its weight as its kernel wants it, so plans are dear: for 4096 x 4096 some
milliseconds to half a second on a CPU, and about the compressed weight's bytes each. Two rules keep them few:

- A weight's first `exact` sizes get plans of their own: batches of a fixed size, and decoding beside them. Where m goes on changing, later
  sizes are rounded up to one of four steps an octave (never by more than a quarter), and X gets rows of zeros.
- A weight has at most `per_weight` plans, of which the one that was not used for longest goes.

The plans of a weight go with the weight.
"""

import os
import threading
import weakref
from collections import OrderedDict

from . import errors
from ._core import Device, Plan, Weight

limits = {"per_weight": 8, "exact": 4}


def plan_limits(*, per_weight=None, exact=None):
    """What is in force, as a dict; the arguments change it. per_weight: plans that a weight may have. exact: sizes that get plans of their
    own before others are rounded up; a number as large as per_weight turns the rounding off."""
    for name, value in (("per_weight", per_weight), ("exact", exact)):
        if value is None:
            continue
        least = 1 if name == "per_weight" else 0
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise errors.InvalidArgument(f"{name} is {value!r}; it must be a whole number, {least} or more")
    limits.update({name: value for name, value in (("per_weight", per_weight), ("exact", exact)) if value is not None})
    return dict(limits)


def round_up(m):
    """The smallest of 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, ... that is not below m: less than a quarter above it."""
    step = 1 << max(m.bit_length() - 3, 0)
    return -(-m // step) * step


class WeightPlans:
    """The plans of one weight, by m, device and options."""

    def __init__(self):
        self.lock = threading.RLock()  # a signal's handler may multiply by the weight whose plan is being made
        self.plans = OrderedDict()  # (m, kind) -> Plan, the last used last; a kind is (device, options)
        self.pinned = {}  # the same, of plans that something holds by their addresses: these stay
        self.exact = {}  # kind -> the sizes that have plans of their own, or had

    def size_for(self, m, kind, note):
        """m, or what it is rounded up to: by the sizes that were asked for before, whatever else is kept."""
        sizes = self.exact.setdefault(kind, set())
        if limits["exact"] >= limits["per_weight"] or m in sizes:
            return m
        if len(sizes) >= limits["exact"]:
            return round_up(m)
        if note:
            sizes.add(m)
        return m

    def find(self, key):
        plan = self.pinned.get(key)
        if plan is None and (plan := self.plans.get(key)) is not None:
            self.plans.move_to_end(key)
        return plan

    def find_again(self, key):
        """find() for those who do not hold the lock."""
        try:
            return self.find(key)
        except KeyError:  # another thread's plan took its place between the two steps
            return None


_caches = weakref.WeakKeyDictionary()  # Weight -> WeightPlans
_caches_lock = threading.RLock()
_devices = {}  # name -> Device
_of_the_parent = []
_is_child = False
on_memory = []  # called before a plan is tried again for which there was no memory: what else is kept and could be let go


def _after_fork():
    """A child of fork() has one thread, and OpenMP's are not in it: plans of its parent's, made for several, would wait for them for ever.
    They are kept, not released: what they hold on a GPU is the parent's."""
    global _caches, _caches_lock, _is_child
    _is_child = True
    _of_the_parent.extend(_caches.values())  # without their weights, with which they would go
    _caches, _caches_lock = weakref.WeakKeyDictionary(), threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


def plans_of(weight):
    try:
        plans = _caches.get(weight)
    except TypeError:
        plans = None
    if plans is None:
        if not isinstance(weight, Weight):
            raise TypeError(f"weight is of type {type(weight).__name__}; it must be a lacuna.Weight: compress() and load() make one")
        with _caches_lock:
            plans = _caches.setdefault(weight, WeightPlans())
    return plans


def device_name(device):
    """The name by which device_of() knows a Device, or anything else that means one."""
    if not isinstance(device, (str, Device)):
        device = Device(device)
    name = device if isinstance(device, str) else device.name
    if isinstance(device, Device):
        _devices.setdefault(name, device)
    elif name not in _devices:
        opened = Device(name)
        name = opened.name  # "cuda:0" of "cuda", and whatever "auto" found
        _devices.setdefault(name, opened)
    return name


def device_of(name):
    """A Device, opened once for its name."""
    if name not in _devices:
        _devices[name] = Device(name)
    return _devices[name]


def _make(weight, size, kind):
    name, options = kind
    options = dict(options)
    if _is_child and name == "cpu":
        options["threads"] = 1  # more, even where they were asked for, would be waited for for ever
    try:
        return Plan(weight, size, device_of(name), **options)
    except errors.OutOfMemory:
        # Plans that nobody is using are a cache: better without them than without this one.
        for other in list(_caches.values()):
            if other.lock.acquire(blocking=False):
                other.plans.clear()
                other.lock.release()
        plans_of(weight).plans.clear()  # its lock is the caller's
        for release in on_memory:
            release()
        return Plan(weight, size, device_of(name), **options)


def plan_for(weight, m, device, options, *, rounded=True, make=True, pin=False):
    """A plan for m tokens or for somewhat more: its .m says which.

    `device` is a name as device_name() gives it, `options` a tuple of (name, value), as Plan takes them. With rounded=False it is for m
    itself, with make=False None where there is none yet; with pin=True it stays for as long as the weight does.
    """
    plans = plans_of(weight)
    kind = (device, options)
    with plans.lock:
        key = (plans.size_for(m, kind, make) if rounded else m, kind)
        plan = plans.find(key)
        if plan is None:
            if not make:
                return None
            plan = plans.plans[key] = _make(weight, key[0], kind)
            while len(plans.plans) > limits["per_weight"]:
                plans.plans.popitem(last=False)
        if pin and key not in plans.pinned:
            plans.pinned[key] = plans.plans.pop(key, plan)
        return plan


def cached_plans(weight):
    """The plans that are kept for a weight, for those who want to know."""
    plans = plans_of(weight)
    with plans.lock:
        return [*plans.pinned.values(), *plans.plans.values()]

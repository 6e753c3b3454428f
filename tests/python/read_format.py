"""read_format.py - a second reader of Lacuna containers, written from docs/format.md alone.

It shares no code and no author's memory with the C library: where the two disagree, the page is unclear or one is wrong.
check_container.py uses it; it is also the shortest description of the format that runs.
"""
import json
import math
import re
import struct

import numpy as np
import safetensors

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "U8": "u1", "U32": "<u4"}


def to_array(tensor):
    """The elements of a tensor as safetensors gives it; BF16, which numpy lacks, becomes float32."""
    data = bytes(tensor["data"])
    if tensor["dtype"] == "BF16":
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").reshape(tensor["shape"])
    return np.frombuffer(data, TYPES[tensor["dtype"]]).reshape(tensor["shape"])


class Pattern:
    """family, unit_n, unit_k and either N and M or, for a free distribution, density."""

    def __init__(self, text):
        head, _, rest = text.rpartition(":") if text.endswith("%") else ("", "", text)
        numbers = rest.split(":")
        self.density = float(text.rpartition(":")[2][:-1]) / 100 if text.endswith("%") else None
        unit = head if self.density is not None else ":".join(numbers[:-2])
        self.vnm = unit.isdigit()
        block = re.fullmatch(r"bw(\d+)x(\d+)", unit)
        vector = re.fullmatch(r"(?:vw|shfl)?(\d+)", unit)
        if block:
            self.unit_n, self.unit_k = int(block[1]), int(block[2])
        else:
            self.unit_n, self.unit_k = int(vector[1]) if vector else 1, 1
        if self.density is None:
            self.n, self.m = int(numbers[-2]), int(numbers[-1])


def bits_to_numbers(raw, count, width):
    """`count` numbers of `width` bits, least significant bit first."""
    bits = np.unpackbits(raw, bitorder="little")
    assert not bits[count * width :].any(), "spare bits are not zero"
    return bits[: count * width].reshape(count, width) @ (1 << np.arange(width)) if width else np.zeros(count, int)


def kept_units(part, encoding, group, n, m, units):
    """The units that row group `group` keeps (V:N:M: its selected inputs), ascending; n of every m."""
    full, rest = divmod(units, m)
    slots = full * n + min(n, rest)
    if encoding == "implicit":
        return np.arange(units)
    width = math.ceil(math.log2(m)) if encoding == "packed" else 1
    size = -(-slots * width // 8) if encoding == "packed" else -(-units // 8)
    raw = part["index"][group * size : (group + 1) * size]
    assert len(raw) == size, "index is too short"
    if encoding == "packed":
        found = bits_to_numbers(raw, slots, width) + np.arange(slots) // n * m
    else:
        found = np.flatnonzero(bits_to_numbers(raw, units, 1))
    assert len(found) == slots and (np.diff(found) > 0).all() and (slots == 0 or found[-1] < units), "bad index"
    assert (np.bincount(found // m, minlength=-(-units // m))[:full] == n).all(), "a group keeps the wrong number"
    return found


def decode(part, record):
    """The dense matrix [n_out][k_in] of one weight: `part` maps part names to arrays, `record` is its JSON entry."""
    n, k = record["n"], record["k"]
    pattern = Pattern(record["pattern"])
    unit_n, unit_k = min(pattern.unit_n, max(n, 1)), min(pattern.unit_k, max(k, 1))
    row_groups, units = -(-n // unit_n), -(-k // unit_k)
    values = part["values"]
    stored = np.zeros((n, units * unit_k), values.dtype)  # columns past k are cut off at the end
    value_at = column_at = position_at = 0
    for group in range(row_groups):
        rows = min(unit_n, n - group * unit_n)
        first_row = group * unit_n
        if pattern.density is not None:
            slots = int(part["counts"][group])
            assert slots <= max(math.floor(pattern.density * units + 0.5), 1 if units else 0), "a row group keeps too many units"
            kept = part["columns"][column_at : column_at + slots].astype(int)
            assert (np.diff(kept) > 0).all() and (slots == 0 or kept[-1] < units), "bad columns"
            column_at += slots
        elif pattern.vnm:
            kept = kept_units(part, record["encoding"], group, 4, pattern.m, units)
            full, rest = divmod(units, pattern.m)
            slots = full * pattern.n + min(pattern.n, rest)
        else:
            kept = kept_units(part, record["encoding"], group, pattern.n, pattern.m, units)
            slots = len(kept)
        block = values[value_at : value_at + slots * unit_k * rows].reshape(slots, unit_k, rows)
        value_at += block.size
        if pattern.vnm:
            if pattern.n < 4:
                size = -(-slots * rows * 2 // 8)
                position = bits_to_numbers(part["positions"][position_at : position_at + size], slots * rows, 2)
                position = position.reshape(slots, rows)
                position_at += size
            else:
                position = np.repeat(np.arange(slots) % 4, rows).reshape(slots, rows)
            column = kept[np.arange(slots)[:, None] // pattern.n * 4 + position]
            stored[first_row + np.arange(rows)[None, :], column] = block[:, 0, :]
        else:
            for slot, unit in enumerate(kept):
                stored[first_row : first_row + rows, unit * unit_k : (unit + 1) * unit_k] = block[slot].T
    assert value_at == values.size, "values has elements left over"
    assert not stored[:, k:].any(), "the padding of the last unit is not zero"
    dense = np.zeros((record.get("n_out", n), record.get("k_in", k)), values.dtype)
    dense[np.ix_(part.get("row_perm", np.arange(n)), part.get("col_perm", np.arange(k)))] = stored[:, :k]
    return dense


def read_container(path):
    """(weights, tensors, records) of a container: dense matrices by name, the other tensors, the JSON entries."""
    with open(path, "rb") as file:
        raw = file.read()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    for name, entry in header.items():
        if name != "__metadata__" and not name.startswith("lacuna:pad:"):
            assert (8 + length + entry["data_offsets"][0]) % 64 == 0, f"{name} does not begin at a multiple of 64 bytes"
    lacuna = json.loads(header["__metadata__"]["lacuna"])
    assert lacuna["format"] == 1
    tensors = {name: to_array(tensor) for name, tensor in safetensors.deserialize(raw)}
    weights = {}
    for name, record in lacuna["weights"].items():
        prefix = name + ":"
        part = {key[len(prefix) :]: tensors.pop(key) for key in list(tensors) if key.startswith(prefix)}
        weights[name] = decode(part, record)
    tensors = {name: value for name, value in tensors.items() if not name.startswith("lacuna:pad:")}
    return weights, tensors, lacuna["weights"]

"""check_container.py - prunes a checkpoint with the `lacuna` command and reads the container with other people's code:
Python's safetensors opens the file, read_format.py decodes every weight, and the result is compared with the dense matrix.

    check_container.py LACUNA SCRATCH

ctest runs it as `python_safetensors` and takes exit status 77 for skipped: numpy or safetensors is not there.
"""
import json
import os
import shutil
import struct
import subprocess
import sys

try:
    import numpy as np
    import safetensors
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

from read_format import Pattern, read_container, to_array

PATTERNS = [
    "2:4", "1:3", "4:4", "3:7", "1:16", "16:32", "2:256",
    "vw4:2:4", "vw32:8:32", "vw5:3:7", "vw512:1:2",
    "bw4x4:2:8", "bw3x5:1:2", "bw1x1:2:2", "bw2x64:1:3",
    "64:2:8", "8:2:4", "16:1:5", "4:4:10", "3:3:7",
    "25%", "vw8:30%", "bw4x4:12.5%", "shfl8:25%", "shfl64:50%",
]  # fmt: skip
SHAPES = [(64, 96), (67, 101), (1, 9), (130, 2), (5, 1)]
SEED = 20240229


def to_bytes(array, dtype):
    """A float32 array in one of the file's types, with what that type makes of it."""
    if dtype == "BF16":
        high = (array.view("<u4") + 0x8000 >> 16).astype("<u2")  # near enough to rounding: any value will do
        return high.tobytes(), (high.astype("<u4") << 16).view("<f4")
    cast = array.astype({"F32": "<f4", "F16": "<f2"}[dtype])
    return cast.tobytes(), cast


def make_checkpoint(path):
    """Matrices of every dtype and shape, a vector and a tensor of rank 3; returns the arrays by name."""
    random = np.random.default_rng(SEED)
    header, body, arrays = {"__metadata__": {"made_by": "check_container.py"}}, b"", {}
    shapes = [(f"layer{i}.weight", shape) for i, shape in enumerate(SHAPES)] + [("norm.weight", (17,)), ("conv.weight", (3, 2, 5))]
    for dtype in ("F32", "F16", "BF16"):
        for name, shape in shapes:
            data, array = to_bytes(random.standard_normal(shape).astype("<f4"), dtype)
            offsets = [len(body), len(body) + len(data)]
            header[f"{dtype}.{name}"] = {"dtype": dtype, "shape": list(shape), "data_offsets": offsets}
            arrays[f"{dtype}.{name}"] = array.reshape(shape)
            body += data
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)
    return arrays


def unit_view(matrix, pattern):
    """[row group][unit] sums of a matrix over the units, edges included."""
    unit_n, unit_k = pattern.unit_n, pattern.unit_k
    rows = np.add.reduceat(matrix, np.arange(0, matrix.shape[0], unit_n), axis=0)
    return np.add.reduceat(rows, np.arange(0, matrix.shape[1], unit_k), axis=1)


def check_grouped(dense, decoded, pattern):
    """N:M without selection: each group keeps min(N, r) whole units, and they are those of the largest energy."""
    energy = unit_view(dense.astype("f8") ** 2, pattern)
    kept = unit_view((decoded != 0).astype(int), pattern) > 0
    for begin in range(0, energy.shape[1], pattern.m):
        part, stays = energy[:, begin : begin + pattern.m], kept[:, begin : begin + pattern.m]
        count = min(pattern.n, part.shape[1])
        assert (stays.sum(axis=1) == count).all(), f"the group at unit {begin} does not keep {count}"
        best = np.sort(part, axis=1)[:, part.shape[1] - count :].sum(axis=1)
        assert np.allclose((part * stays).sum(axis=1), best, rtol=1e-12), f"the group at unit {begin} does not keep the largest"
    whole = np.repeat(np.repeat(kept, pattern.unit_n, axis=0), pattern.unit_k, axis=1)[: dense.shape[0], : dense.shape[1]]
    assert ((decoded != 0) == whole).all(), "a unit is kept in part"


def check_weight(dense, decoded, text):
    pattern = Pattern(text)
    stays = decoded != 0
    assert dense.shape == decoded.shape and dense.dtype == decoded.dtype, f"{decoded.dtype} {decoded.shape}, not {dense.dtype} {dense.shape}"
    assert (decoded[stays] == dense[stays]).all(), "a kept value differs from the dense matrix"
    if pattern.vnm:
        for begin in range(0, dense.shape[1], pattern.m):
            part = stays[:, begin : begin + pattern.m]
            assert (part.sum(axis=1) == min(pattern.n, part.shape[1])).all(), f"the group at column {begin} keeps the wrong number"
            for top in range(0, dense.shape[0], pattern.unit_n):
                assert part[top : top + pattern.unit_n].any(axis=0).sum() <= 4, f"rows {top} on, column {begin} on: more than 4 inputs"
    elif pattern.density is None:
        check_grouped(dense, decoded, pattern)
    elif not text.startswith("shfl"):
        kept = unit_view(stays.astype(int), pattern) > 0
        most = max(int(np.floor(pattern.density * kept.shape[1] + 0.5)), 1)
        assert (kept.sum(axis=1) == most).all(), f"a row group does not keep {most} units"


def prune(lacuna, dense_path, path, text, *options):
    command = [lacuna, "prune", dense_path, path, "--pattern", text, *options]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert result.returncode == 0, f"{' '.join(command)} ended with {result.returncode}: {result.stdout}"


def read_tensors(path):
    with open(path, "rb") as file:
        return {name: to_array(tensor) for name, tensor in safetensors.deserialize(file.read())}


def check_file(path, arrays, zeroed, text, encoding):
    """One container against the dense matrices and against what the library itself says stays."""
    with safetensors.safe_open(path, framework="np") as file:  # safetensors' own checks of the whole header
        assert "lacuna" in file.metadata()
    weights, tensors, records = read_container(path)
    expected = {name for name, array in arrays.items() if array.ndim == 2}
    assert set(weights) == expected, f"weights {sorted(weights)}, not {sorted(expected)}"
    assert set(tensors) == set(arrays) - expected, f"other tensors {sorted(tensors)}"
    for name, array in tensors.items():
        assert (array == arrays[name]).all(), f"{name} was not copied as it is"
    for name, decoded in weights.items():
        record = records[name]
        assert record["pattern"] == text, f"{name} is recorded as {record['pattern']}"
        assert record["dtype"] == name.partition(".")[0], f"{name} is stored as {record['dtype']}"
        assert encoding in ("auto", record["encoding"]), f"{name} has the encoding {record['encoding']}"
        try:
            check_weight(arrays[name], decoded, text)
            assert (decoded == zeroed[name]).all(), "decoded, it is not what prune --dense gives"
        except AssertionError as error:
            raise AssertionError(f"{path}: {name} {arrays[name].shape}, {record['encoding']}: {error}") from error
    return len(weights)


def check_pattern(lacuna, dense_path, arrays, text, scratch):
    stem = os.path.join(scratch, text.replace(":", "_").replace("%", "pc"))
    prune(lacuna, dense_path, stem + ".dense.safetensors", text, "--dense")
    zeroed = read_tensors(stem + ".dense.safetensors")
    count = 0
    for encoding in ["auto"] if "%" in text else ["auto", "packed", "bitmask"]:
        path = f"{stem}.{encoding}.safetensors"
        prune(lacuna, dense_path, path, text, "--encoding", encoding)
        count += check_file(path, arrays, zeroed, text, encoding)
    return count


def main():
    lacuna, scratch = sys.argv[1:]
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch)
    dense_path = os.path.join(scratch, "dense.safetensors")
    arrays = make_checkpoint(dense_path)
    count = sum(check_pattern(lacuna, dense_path, arrays, text, scratch) for text in PATTERNS)
    print(f"{count} weights under {len(PATTERNS)} patterns read back by safetensors {safetensors.__version__}, seed {SEED}")


if __name__ == "__main__":
    main()

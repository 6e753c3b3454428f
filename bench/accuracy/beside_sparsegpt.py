"""beside_sparsegpt.py - the output error of `obs` beside that of SparseGPT's own code, on the same weights and samples: rows of bench/results/prune_obs.csv.

    beside_sparsegpt.py --sparsegpt DIR --lacuna PROGRAM --csv OUT.csv [--model FILE.safetensors --calibration FILE.safetensors] [--commit NAME] [PATTERN ...]

DIR is a clone of github.com/IST-DASLab/sparsegpt, of which nothing is copied here. Two random layers, or every matrix of a model whose inputs the
calibration file has (`language.py calibrate`). Both sides damp by a hundredth; both errors are summed up here, in double. Needs PyTorch; no GPU.
"""

import argparse
import contextlib
import csv
import io
import os
import subprocess
import sys
import tempfile
import types

import numpy
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import cells
import collect_calibration as collect


def load_peer(folder):
    """Its class. It imports transformers for the type of one layer, and waits for a GPU: stand-ins do for both."""
    if "transformers" not in sys.modules:
        sys.modules["transformers"] = types.SimpleNamespace(Conv1D=type("Conv1D", (), {}))
    if not torch.cuda.is_available():
        torch.cuda.synchronize = lambda: None
    sys.path.insert(0, folder)
    with contextlib.redirect_stdout(io.StringIO()):
        import sparsegpt as peer
    return peer.SparseGPT


def random_layers():
    """Weights with heavy tails; inputs with common factors, in channels of different size. {name: (W [n][k], X [samples][k])}"""
    layers = {}
    for name, n, k, samples, factors in (("random.a", 512, 768, 2048, 48), ("random.b", 512, 1024, 512, 32)):
        random = numpy.random.default_rng(k)
        x = random.standard_normal((samples, factors)) @ random.standard_normal((factors, k)) + random.standard_normal((samples, k))
        layers[name] = (random.standard_t(5, (n, k)).astype("f4"), (x * numpy.exp(random.standard_normal(k))).astype("f4"))
    return layers


def layers_of(model, calibration):
    inputs = cells.read_safetensors(calibration)
    weights = {name[: -len(".weight")]: w for name, w in cells.read_safetensors(model).items() if name.endswith(".weight")}
    return {name: (w, inputs[name + ".input"]) for name, w in weights.items() if name + ".input" in inputs}


def by_peer(peer, w, x, pattern):
    layer = torch.nn.Linear(w.shape[1], w.shape[0], bias=False)
    layer.weight.data = torch.from_numpy(w.copy())
    pruner = peer(layer)
    pruner.add_batch(torch.from_numpy(x)[None], None)
    kept, _, of = pattern.partition(":")
    with contextlib.redirect_stdout(io.StringIO()):
        if of:
            pruner.fasterprune(0, prunen=int(of) - int(kept), prunem=int(of))
        else:
            pruner.fasterprune(1 - float(kept.rstrip("%")) / 100)
    return layer.weight.data.numpy()


def by_lacuna(lacuna, w, x, pattern):
    with tempfile.TemporaryDirectory() as folder:
        model, inputs, out = (os.path.join(folder, name + ".safetensors") for name in ("model", "inputs", "out"))
        collect.write_safetensors(model, {"layer.weight": torch.from_numpy(w)})
        collect.write_safetensors(inputs, {"layer.input": torch.from_numpy(x)})
        subprocess.run([lacuna, "prune", model, out, "--dense", "-p", pattern, "-m", "obs", "-c", inputs], check=True, stdout=subprocess.DEVNULL)
        return cells.read_safetensors(out)["layer.weight"]


def error(w, pruned, x):
    outputs = lambda matrix: float(numpy.square(x.astype(float) @ matrix.astype(float).T).sum())
    return outputs(w - pruned) / outputs(w)


def main():
    options = argparse.ArgumentParser(description="The output error of obs beside that of SparseGPT's own code.")
    options.add_argument("patterns", nargs="*", metavar="PATTERN")
    options.add_argument("--sparsegpt", required=True, metavar="DIR")
    options.add_argument("--lacuna", default="lacuna", metavar="PROGRAM")
    options.add_argument("--model", metavar="FILE.safetensors")
    options.add_argument("--calibration", metavar="FILE.safetensors")
    options.add_argument("--csv", required=True, metavar="FILE")
    options.add_argument("--commit", default="")
    args = options.parse_args()
    peer = load_peer(args.sparsegpt)
    layers = layers_of(args.model, args.calibration) if args.model else random_layers()
    fresh = not os.path.exists(args.csv)
    with open(args.csv, "a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if fresh:
            writer.writerow("layer,n,k,samples,pattern,ours_relative_error,sparsegpt_relative_error,commit,device_info".split(","))
        for name, (w, x) in layers.items():
            for pattern in args.patterns or ("2:4", "4:8", "50%"):
                ours, theirs = error(w, by_lacuna(args.lacuna, w, x, pattern), x), error(w, by_peer(peer, w, x, pattern), x)
                writer.writerow([name, *w.shape, len(x), pattern, "%.6f" % ours, "%.6f" % theirs, args.commit, "both on a CPU, PyTorch %s" % torch.__version__])
                file.flush()


if __name__ == "__main__":
    main()

"""language.py - a small language model, trained, pruned in every way, and tuned again: what each pattern and method costs.

    language.py train --text FILE --model OUT.safetensors [--seconds 160] [--curve OUT.csv] [--from IN.safetensors]
    language.py table --text FILE --model IN.safetensors --lacuna PROGRAM --csv OUT.csv [--steps 200] [--limit SECONDS] [--resume]
    language.py calibrate --text FILE --model IN.safetensors --calibration OUT.safetensors

A transformer over bytes, 2.4 million weights in 18 matrices. `table` collects inputs and gradients of every matrix from
training text, prunes them by `lacuna prune` as cells.py lists (many processes side by side), and measures the loss on text
that was held out, in bits per byte: after pruning, and after `--steps` of training in which the zeros stay zero. All cells see
the same text in the same order. `train` ends with 3 when the model had not converged; `calibrate` writes the inputs of the
matrices alone. Needs PyTorch 2; takes minutes on a GPU and hours without.
"""

import argparse
import csv
import math
import os
import sys
import tempfile
import time

import numpy
import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import cells as table_cells
import collect_calibration as collect

WIDTH, LAYERS, HEADS, CONTEXT, BATCH = 256, 3, 4, 256, 64
HELD_OUT = 100  # one block of text in so many
BLOCK = 1 << 16
EVERY = 4  # of the other blocks, one in so many is learned from
FALL = 0.3  # of the training's steps, in which the rate falls
SAME = 0.01  # converged: twice the steps bring less than this share of the loss
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def normed(x, norm):
    """The norm in the type of x: left to itself, autocast would go through float32 and back, three times the bytes."""
    with torch.autocast(DEVICE, enabled=False):
        return functional.layer_norm(x, norm.normalized_shape, norm.weight.to(x.dtype), norm.bias.to(x.dtype), norm.eps)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before_attention, self.before_feed = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        for name in ("query", "key", "value", "output"):
            setattr(self, name, nn.Linear(WIDTH, WIDTH, bias=False))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        batch, tokens, _ = x.shape
        h = normed(x, self.before_attention)
        q, k, v = (part(h).view(batch, tokens, HEADS, -1).transpose(1, 2) for part in (self.query, self.key, self.value))
        x = x + self.output(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape))
        return x + self.down(functional.gelu(self.up(normed(x, self.before_feed))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.last = nn.LayerNorm(WIDTH)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                scale = 0.02 / math.sqrt(2 * LAYERS) if name.endswith(("output.weight", "down.weight")) else 0.02
                nn.init.normal_(weight, std=scale)

    def forward(self, x):
        h = self.bytes(x) + self.places.weight[: x.shape[1]]
        if torch.is_autocast_enabled():
            h = h.to(torch.bfloat16)
        for block in self.blocks:
            h = block(h)
        return functional.linear(normed(h, self.last), self.bytes.weight)


def loss_of(model, text):
    """Mean bits per byte of `text` [batch][CONTEXT + 1], as integers."""
    with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=DEVICE == "cuda"):
        logits = model(text[:, :-1])
    return functional.cross_entropy(logits.float().flatten(0, 1), text[:, 1:].flatten()) / math.log(2)


class Text:
    """
    The bytes of a file on the device, with every HELD_OUT-th block kept apart, and of the rest one block in EVERY to learn from: of
    all 59 MB such a model goes on learning for hours, of a quarter it has learned in minutes what there is for it to learn.
    """

    def __init__(self, path):
        data = torch.from_numpy(numpy.fromfile(path, dtype=numpy.uint8))
        blocks = data[: len(data) // BLOCK * BLOCK].view(-1, BLOCK)
        apart = torch.arange(len(blocks)) % HELD_OUT == HELD_OUT - 1
        if not apart.any():
            raise SystemExit("language: '%s' has %d bytes; at least %d are needed" % (path, len(data), BLOCK * HELD_OUT))
        self.training, self.held_out = (part.flatten().to(DEVICE) for part in (blocks[~apart][::EVERY], blocks[apart]))
        self.window = torch.arange(CONTEXT + 1, device=DEVICE)

    def batch(self, random, size=None):
        starts = torch.randint(len(self.training) - CONTEXT - 1, (size or BATCH, 1), generator=random, device=DEVICE)
        return self.training[starts + self.window].long()

    def held_out_loss(self, model, sequences=512):
        starts = torch.linspace(0, len(self.held_out) - CONTEXT - 1, sequences, device=DEVICE).long()[:, None]
        with torch.no_grad():
            parts = (self.held_out[starts[i : i + BATCH] + self.window].long() for i in range(0, sequences, BATCH))
            losses = [loss_of(model, part) * len(part) for part in parts]
        return float(sum(losses)) / sequences


def orthogonal(x):
    """Square matrices [count][n][n], singular values moved near to 1: five steps of Newton-Schulz with the coefficients of Muon."""
    x = x.to(torch.bfloat16 if DEVICE == "cuda" else torch.float32)
    x = x / (x.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    for _ in range(5):
        square = x @ x.transpose(1, 2)
        x = 3.4445 * x + (2.0315 * square @ square - 4.7750 * square) @ x
    return x.float()


def squares(matrix):
    """A view [count][WIDTH][WIDTH] of a matrix whose sides are multiples of WIDTH."""
    rows, columns = matrix.shape
    return matrix.reshape(rows // WIDTH, WIDTH, columns // WIDTH, WIDTH).transpose(1, 2).flatten(0, 1)


class Trainer:
    """
    Steps of AdamW under masks; on a GPU one captured graph, replayed for every step of every cell. With `muon` the matrices go
    by Muon instead (momentum made orthogonal, in squares of WIDTH), which needs fewer steps to the same loss.
    """

    DECAY, MOMENTUM = 0.05, 0.95

    def __init__(self, model, text, muon=False):
        self.model, self.text = model, text
        self.matrices = {name: weight for name, weight in model.named_parameters() if name.startswith("blocks.") and weight.dim() == 2}
        self.masks = {name: torch.ones_like(weight) for name, weight in self.matrices.items()}
        self.batch = torch.zeros(BATCH, CONTEXT + 1, dtype=torch.long, device=DEVICE)
        self.loss_sum = torch.zeros((), device=DEVICE)
        self.momentum = torch.cat([squares(torch.zeros_like(weight)) for weight in self.matrices.values()]) if muon else None
        self.graph = None
        cuda = DEVICE == "cuda"
        options = {"capturable": True, "fused": True} if cuda else {}
        others = [weight for name, weight in model.named_parameters() if not muon or name not in self.matrices]
        self.optimiser = torch.optim.AdamW(others, lr=torch.tensor(0.0, device=DEVICE) if cuda else 0.0, betas=(0.9, 0.95), weight_decay=self.DECAY, **options)
        self.rate = self.optimiser.param_groups[0]["lr"] if cuda else torch.tensor(0.0)
        if cuda:
            self.capture()

    def step(self):
        self.model.zero_grad(set_to_none=False)
        loss = loss_of(self.model, self.batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.optimiser.step()
        with torch.no_grad():
            self.loss_sum += loss
            if self.momentum is not None:
                self.muon_step()
            torch._foreach_mul_(list(self.matrices.values()), list(self.masks.values()))

    def muon_step(self):
        gradient = torch.cat([squares(weight.grad) for weight in self.matrices.values()])
        self.momentum.mul_(self.MOMENTUM).add_(gradient)
        # as large as a step of AdamW: 0.2 of the rate, in the mean
        update = orthogonal(gradient + self.MOMENTUM * self.momentum) * (self.rate * 0.2 * math.sqrt(WIDTH))
        keep = 1 - self.rate * self.DECAY
        first = 0
        for weight in self.matrices.values():
            count, (rows, columns) = weight.numel() // WIDTH**2, weight.shape
            part = update[first : first + count].view(rows // WIDTH, columns // WIDTH, WIDTH, WIDTH).transpose(1, 2).reshape(rows, columns)
            weight.mul_(keep).sub_(part)
            first += count

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # the rate is 0: nothing is learned here
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step()

    def moving(self):
        """Every tensor that a step changes."""
        return list(self.model.parameters()) + self.moments()

    def moments(self):
        state = [value for state in self.optimiser.state.values() for value in state.values() if torch.is_tensor(value)]
        return state + ([self.momentum] if self.momentum is not None else [])

    def run(self, rates, seed, fresh=True, tell=None, every=500):
        """As many steps as there are rates, on the text that `seed` draws; `fresh`: the optimiser forgets. `tell`, after `every` steps and the last."""
        if fresh:
            for value in self.moments():
                value.zero_()
        random = torch.Generator(DEVICE).manual_seed(seed)
        for i, rate in enumerate(rates):
            self.rate.fill_(rate)
            self.batch.copy_(self.text.batch(random))
            if self.graph:
                self.graph.replay()
            else:
                self.optimiser.param_groups[0]["lr"] = rate
                self.step()
            if tell and ((i + 1) % every == 0 or i + 1 == len(rates)):
                tell(i + 1)


def rates_for(steps, peak, warm):
    """Up, then down along a cosine to a twentieth: for tuning."""
    return [peak * min(1, (i + 1) / warm) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * i / steps))) for i in range(steps)]


def load(model, path):
    state = model.state_dict()
    for name, array in table_cells.read_safetensors(path).items():
        state[name].copy_(torch.from_numpy(array))


class Curve:
    """The losses along the training, as lines of a CSV file; a file that is there is continued, steps and seconds too."""

    HEAD = "run step seconds rate training_loss held_out_loss commit device".split()

    def __init__(self, path, trainer, every, commit, further):
        self.trainer, self.every = trainer, every
        self.end = [commit, torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu"]
        rows = []
        if further:
            if not path or not os.path.exists(path):
                raise SystemExit("language: --from needs the --curve of the training before, which says how long that was")
            with open(path, newline="") as file:
                rows = [row for row in csv.DictReader(file) if row["run"] != "half"]
        self.steps = int(rows[-1]["step"]) if rows else 0
        self.begin = time.time() - (float(rows[-1]["seconds"]) if rows else 0)
        self.file = open(path, "a" if rows else "w", newline="") if path else None
        if not rows:
            self.write(self.HEAD)

    def write(self, row):
        if self.file:
            csv.writer(self.file).writerow(row)
            self.file.flush()

    def run(self, name, first, rates, seed, fresh=False):
        """Steps, of which the first is number `first` of the run `name`; the held-out loss after the last."""
        last = [0, 0.0]
        self.trainer.loss_sum.zero_()

        def tell(i):
            training = float(self.trainer.loss_sum) / (i - last[0])
            self.trainer.loss_sum.zero_()
            last[:] = i, self.trainer.text.held_out_loss(self.trainer.model)
            self.write([name, first + i, "%.1f" % (time.time() - self.begin), "%.3g" % rates[i - 1], "%.4f" % training, "%.4f" % last[1]] + self.end)

        self.trainer.run(rates, seed, fresh, tell, self.every)
        return last[1]


def falling(rate, steps):
    return [rate * (1 - (i + 1) / (steps + 1)) for i in range(steps)]


def train_twice(curve, trainer, rate, steps):
    """
    The rate rises, stays, and falls to zero over the last FALL of the steps; and a second run of half as many, the same until its rate
    falls. Returns the steps and the losses of both.
    """
    half = steps // 2
    fall, warm = int(half * FALL), min(300, half // 5)
    curve.run("both", 0, [rate * min(1, (i + 1) / warm) for i in range(half - fall)], 2, fresh=True)
    kept = [value.clone() for value in trainer.moving()]
    short = curve.run("half", half - fall, falling(rate, fall), 4)
    with torch.no_grad():
        for value, old in zip(trainer.moving(), kept):
            value.copy_(old)
    curve.run("whole", half - fall, [rate] * (half - fall), 5)
    return half, short, 2 * half, curve.run("whole", 2 * (half - fall), falling(rate, 2 * fall), 6)


def train(args):
    """
    Any run whose rate falls to zero ends flat, so its own end says nothing of convergence. What says something is what more steps bring:
    a run beside one of half as many steps, or, with --from, beside the run that it goes on from.
    """
    torch.manual_seed(1)
    text = Text(args.text)
    model = Model().to(DEVICE)
    trainer = Trainer(model, text, muon=True)
    if args.source:
        load(model, args.source)
    before = text.held_out_loss(model)
    trainer.run([0.0] * 20, seed=1)
    float(trainer.loss_sum)
    begin = time.time()
    trainer.run([0.0] * 100, seed=1)
    float(trainer.loss_sum)  # waits for the device
    steps = max(40, int(args.seconds / ((time.time() - begin) / 100)))
    curve = Curve(args.curve, trainer, max(1, steps // 50), args.commit, args.source)
    if args.source:
        rates = [rate * min(1, (i + 1) / 300) for i, rate in enumerate(falling(args.rate, steps))]
        few, short, many = curve.steps, before, curve.steps + steps
        long = curve.run("further", few, rates, 8, fresh=True)
    else:
        few, short, many, long = train_twice(curve, trainer, args.rate, steps)
    with torch.no_grad():  # eleven bits are enough, and the file packs well
        for weight in model.parameters():
            weight.copy_(weight.half().float())
    collect.write_safetensors(args.model, dict(model.state_dict()))
    doubling = (short - long) / long / math.log2(many / few)
    print("%d steps, %.1f times over the text, %.0f s: %.4f bits per byte on text held out" %
          (many, many * BATCH * CONTEXT / len(text.training), time.time() - curve.begin, text.held_out_loss(model)))  # fmt: skip
    print("%d steps: %.4f. Twice the steps bring %.2f%%: %s" % (few, short, 100 * doubling, "converged" if doubling < SAME else "NOT converged"), flush=True)
    return 0 if doubling < SAME else 3


def calibrate(model, text, path, gradients):
    layers = collect.linear_layers(model)
    random = torch.Generator(DEVICE).manual_seed(7)
    batches = [text.batch(random, 16) for _ in range(16)]
    tensors = collect.collect_inputs(model, batches, loss_of, layers, 4096)
    if gradients:
        batches = [text.batch(random, 2) for _ in range(32)]
        tensors.update(collect.collect_gradients(model, batches, loss_of, layers, len(batches)))
    collect.write_safetensors(path, tensors)


def write_calibration(args):
    model = Model().to(DEVICE)
    load(model, args.model)
    calibrate(model, Text(args.text), args.calibration, False)
    return 0


def table(args):
    text = Text(args.text)
    model = Model().to(DEVICE)
    load(model, args.model)
    dense = text.held_out_loss(model)
    begin = time.time()
    folder = tempfile.TemporaryDirectory()
    rows, known = table_cells.finished(args.csv, ("pruned_loss", "tuned_loss")) if args.resume else ([], set())
    chosen = [cell for cell in table_cells.all_cells() if not args.only or cell.pattern in args.only]
    chosen = table_cells.in_turn([cell for cell in chosen if (cell.pattern, cell.method, cell.permute) not in known])
    # before the trainer, whose graph keeps the gradients' places
    calibration = os.path.join(folder.name, "calibration.safetensors")
    calibrate(model, text, calibration, any(cell.method == "fisher" for cell in chosen))
    print("calibration: %.0f s" % (time.time() - begin), flush=True)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    trainer = Trainer(model, text)
    rates = rates_for(args.steps, 5e-4, max(1, args.steps // 10))

    def put(path):
        for name, value in state.items():
            model.state_dict()[name].copy_(value)
        if path:
            load(model, path)
        for name, mask in trainer.masks.items():
            mask.copy_((trainer.matrices[name] != 0).float())

    put(None)
    trainer.run(rates, seed=3)
    longer = text.held_out_loss(model)  # what the same steps give without pruning
    put(None)
    with folder, open(args.csv, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow("model,weights,family,zeros,pattern,method,permute,density,dense_loss,dense_tuned_loss,pruned_loss,tuned_loss,tuning_steps,commit,device".split(","))
        writer.writerows(rows)
        failed = 0
        for cell, path, error in table_cells.pruned(args.lacuna, args.model, calibration, ["blocks.*.weight"], folder.name, chosen, args.workers):
            if error:
                failed += 1
                print("%s: %s" % (cell, error), flush=True)
                continue
            put(path)
            os.unlink(path)
            density = float(sum(mask.sum() for mask in trainer.masks.values()) / sum(mask.numel() for mask in trainer.masks.values()))
            pruned_loss = text.held_out_loss(model)
            tuned = ""
            if time.time() - begin < args.limit:
                trainer.run(rates, seed=3)
                tuned = "%.4f" % text.held_out_loss(model)
            count = sum(weight.numel() for weight in trainer.matrices.values())
            rows.append(["bytes-%dx%d" % (LAYERS, WIDTH), count, cell.family, cell.zeros, cell.pattern, cell.method, cell.permute, "%.4f" % density,
                         "%.4f" % dense, "%.4f" % longer, "%.4f" % pruned_loss, tuned, args.steps if tuned else "", args.commit,
                         torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu"])  # fmt: skip
            writer.writerow(rows[-1])
            file.flush()
    print("%d cells, %d failed, %.0f s; dense %.4f, tuned on %.4f bits per byte" % (len(rows), failed, time.time() - begin, dense, longer))
    return 1 if failed else 0


def main():
    options = argparse.ArgumentParser(description="A small language model, trained, pruned in every way, and tuned again.")
    options.add_argument("what", choices=("train", "table", "calibrate"))
    options.add_argument("--text", required=True, metavar="FILE")
    options.add_argument("--model", required=True, metavar="FILE.safetensors")
    options.add_argument("--seconds", type=float, default=160, help="how long to train; a run of half as long, for comparison, adds 15%%")
    options.add_argument("--from", dest="source", metavar="FILE.safetensors", help="go on with a trained model, by a rate that falls to zero")
    options.add_argument("--rate", type=float, default=4e-3, help="of training, at its highest")
    options.add_argument("--curve", metavar="FILE.csv", help="of the losses along the training")
    options.add_argument("--lacuna", default="lacuna", metavar="PROGRAM")
    options.add_argument("--calibration", default="calibration.safetensors", metavar="FILE", help="what `calibrate` writes")
    options.add_argument("--csv", default="accuracy_language.csv", metavar="FILE")
    options.add_argument("--steps", type=int, default=200, help="of tuning after pruning")
    options.add_argument("--limit", type=float, default=1e9, help="no tuning after so many seconds")
    options.add_argument("--workers", type=int, default=os.cpu_count())
    options.add_argument("--resume", action="store_true", help="keep the rows of CSV that are whole, and make the others")
    options.add_argument("--only", action="append", default=[], metavar="PATTERN")
    options.add_argument("--commit", default="")
    args = options.parse_args()
    return {"train": train, "table": table, "calibrate": write_calibration}[args.what](args)


if __name__ == "__main__":
    sys.exit(main())

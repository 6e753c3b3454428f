"""language.py - a small language model, trained, pruned in every way, and tuned again: what each pattern and method costs.

    language.py train --text FILE --model OUT.safetensors [--seconds 60]
    language.py table --text FILE --model IN.safetensors --lacuna PROGRAM --csv OUT.csv [--steps 200] [--limit SECONDS] [--resume]

A transformer over bytes, 4.7 million weights in 36 matrices. `table` collects inputs and gradients of every matrix from
training text, prunes them by `lacuna prune` as cells.py lists (many processes side by side), and measures the loss on text
that was held out, in bits per byte: after pruning, and after `--steps` of training in which the zeros stay zero. All cells see
the same text in the same order. Needs PyTorch; takes minutes on a GPU and hours without.
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

WIDTH, LAYERS, HEADS, CONTEXT, BATCH = 256, 6, 4, 256, 64
HELD_OUT = 100  # one block of text in so many
BLOCK = 1 << 16
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before_attention, self.before_feed = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        for name in ("query", "key", "value", "output"):
            setattr(self, name, nn.Linear(WIDTH, WIDTH, bias=False))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        batch, tokens, _ = x.shape
        h = self.before_attention(x)
        q, k, v = (part(h).view(batch, tokens, HEADS, -1).transpose(1, 2) for part in (self.query, self.key, self.value))
        x = x + self.output(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape))
        return x + self.down(functional.gelu(self.up(self.before_feed(x))))


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
        for block in self.blocks:
            h = block(h)
        return functional.linear(self.last(h), self.bytes.weight)


def loss_of(model, text):
    """Mean bits per byte of `text` [batch][CONTEXT + 1], as integers."""
    with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=DEVICE == "cuda"):
        logits = model(text[:, :-1])
    return functional.cross_entropy(logits.float().flatten(0, 1), text[:, 1:].flatten()) / math.log(2)


class Text:
    """The bytes of a file on the device, with every HELD_OUT-th block kept apart."""

    def __init__(self, path):
        data = torch.from_numpy(numpy.fromfile(path, dtype=numpy.uint8))
        blocks = data[: len(data) // BLOCK * BLOCK].view(-1, BLOCK)
        apart = torch.arange(len(blocks)) % HELD_OUT == HELD_OUT - 1
        if not apart.any():
            raise SystemExit("language: '%s' has %d bytes; at least %d are needed" % (path, len(data), BLOCK * HELD_OUT))
        self.training, self.held_out = (blocks[which].flatten().to(DEVICE) for which in (~apart, apart))
        self.window = torch.arange(CONTEXT + 1, device=DEVICE)

    def batch(self, random, size=BATCH):
        starts = torch.randint(len(self.training) - CONTEXT - 1, (size, 1), generator=random, device=DEVICE)
        return self.training[starts + self.window].long()

    def held_out_loss(self, model, sequences=512):
        starts = torch.linspace(0, len(self.held_out) - CONTEXT - 1, sequences, device=DEVICE).long()[:, None]
        with torch.no_grad():
            parts = (self.held_out[starts[i : i + BATCH] + self.window].long() for i in range(0, sequences, BATCH))
            losses = [loss_of(model, part) * len(part) for part in parts]
        return float(sum(losses)) / sequences


class Trainer:
    """Steps of AdamW under masks; on a GPU one captured graph, replayed for every step of every cell."""

    def __init__(self, model, text):
        self.model, self.text = model, text
        self.matrices = {name: weight for name, weight in model.named_parameters() if name.startswith("blocks.") and weight.dim() == 2}
        self.masks = {name: torch.ones_like(weight) for name, weight in self.matrices.items()}
        self.batch = torch.zeros(BATCH, CONTEXT + 1, dtype=torch.long, device=DEVICE)
        self.graph = None
        cuda = DEVICE == "cuda"
        rate = torch.tensor(0.0, device=DEVICE) if cuda else 0.0
        options = {"capturable": True, "fused": True} if cuda else {}
        self.optimiser = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.05, **options)
        if cuda:
            self.capture()

    def step(self):
        self.optimiser.zero_grad(set_to_none=False)
        loss = loss_of(self.model, self.batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.optimiser.step()
        with torch.no_grad():
            for name, weight in self.matrices.items():
                weight.mul_(self.masks[name])
        return loss

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

    def run(self, rates, seed, tell=None):
        """As many steps as there are rates, from a fresh optimiser, on the text that `seed` draws."""
        for state in self.optimiser.state.values():
            for value in state.values():
                if torch.is_tensor(value):
                    value.zero_()
        random = torch.Generator(DEVICE).manual_seed(seed)
        for i, rate in enumerate(rates):
            group = self.optimiser.param_groups[0]
            if self.graph:
                group["lr"].fill_(rate)
                self.batch.copy_(self.text.batch(random))
                self.graph.replay()
            else:
                group["lr"] = rate
                self.batch.copy_(self.text.batch(random))
                self.step()
            if tell and i % 500 == 0:
                tell(i)


def rates_for(steps, peak, warm):
    return [peak * min(1, (i + 1) / warm) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * i / steps))) for i in range(steps)]


def load(model, path):
    state = model.state_dict()
    for name, array in table_cells.read_safetensors(path).items():
        state[name].copy_(torch.from_numpy(array))


def train(args):
    torch.manual_seed(1)
    text = Text(args.text)
    model = Model().to(DEVICE)
    trainer = Trainer(model, text)
    trainer.run([0.0] * 20, seed=1)
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    begin = time.time()
    trainer.run([0.0] * 30, seed=1)
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    steps = max(50, int(args.seconds / ((time.time() - begin) / 30)))
    trainer.run(rates_for(steps, 2e-3, min(200, steps // 5)), seed=2)
    with torch.no_grad():  # eleven bits are enough, and the file packs well
        for weight in model.parameters():
            weight.copy_(weight.half().float())
    loss = text.held_out_loss(model)
    collect.write_safetensors(args.model, dict(model.state_dict()))
    print("%d steps, %.0f s: %.4f bits per byte on text held out" % (steps, time.time() - begin, loss), flush=True)


def calibrate(model, text, folder):
    layers = collect.linear_layers(model)
    random = torch.Generator(DEVICE).manual_seed(7)
    batches = [text.batch(random, 16) for _ in range(16)]
    tensors = collect.collect_inputs(model, batches, loss_of, layers, 4096)
    batches = [text.batch(random, 2) for _ in range(32)]
    tensors.update(collect.collect_gradients(model, batches, loss_of, layers, len(batches)))
    path = os.path.join(folder, "calibration.safetensors")
    collect.write_safetensors(path, tensors)
    return path


def table(args):
    text = Text(args.text)
    model = Model().to(DEVICE)
    load(model, args.model)
    dense = text.held_out_loss(model)
    begin = time.time()
    folder = tempfile.TemporaryDirectory()
    calibration = calibrate(model, text, folder.name)  # before the trainer, whose graph keeps the gradients' places
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
    rows, known = table_cells.finished(args.csv, ("pruned_loss", "tuned_loss")) if args.resume else ([], set())
    chosen = [cell for cell in table_cells.all_cells() if not args.only or cell.pattern in args.only]
    chosen = table_cells.in_turn([cell for cell in chosen if (cell.pattern, cell.method, cell.permute) not in known])
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
    options.add_argument("what", choices=("train", "table"))
    options.add_argument("--text", required=True, metavar="FILE")
    options.add_argument("--model", required=True, metavar="FILE.safetensors")
    options.add_argument("--seconds", type=float, default=60, help="how long to train")
    options.add_argument("--lacuna", default="lacuna", metavar="PROGRAM")
    options.add_argument("--csv", default="accuracy_language.csv", metavar="FILE")
    options.add_argument("--steps", type=int, default=200, help="of tuning after pruning")
    options.add_argument("--limit", type=float, default=1e9, help="no tuning after so many seconds")
    options.add_argument("--workers", type=int, default=os.cpu_count())
    options.add_argument("--resume", action="store_true", help="keep the rows of CSV that are whole, and make the others")
    options.add_argument("--only", action="append", default=[], metavar="PATTERN")
    options.add_argument("--commit", default="")
    args = options.parse_args()
    return (train if args.what == "train" else table)(args)


if __name__ == "__main__":
    sys.exit(main())

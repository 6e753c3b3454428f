"""sentences.py - a real model pruned in every way: how far the embeddings of all-MiniLM-L6-v2 move, and what a search finds.

    sentences.py --model DIR --text FILE --lacuna PROGRAM --csv OUT.csv [--workers N] [--resume] [--calibration OUT]

DIR holds the model's model.safetensors and vocab.txt (examples/real_weights.py fetches them). Sentences of FILE, a plain
text, are embedded by the model and by each pruned one. Nothing is trained. Measured, over 1,000 sentences of which 200 ask
and 800 are searched:

    similarity   mean cosine of a sentence's embedding before and after
    order        mean rank correlation (Spearman) of the 800 answers to a question, before and after
    first        share of questions whose best answer is the same
    ten          share of the ten best answers that are the same

The inputs that wanda and obs look at come from 1,000 other sentences. Needs PyTorch.
"""

import argparse
import csv
import os
import re
import sys
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import cells as table_cells
import collect_calibration as collect

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LONGEST = 64  # tokens
QUESTIONS = 200
SENTENCES = 1000


class Layer(nn.Module):
    """One encoder layer; its names are the checkpoint's."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention = nn.ModuleDict({
            "self": nn.ModuleDict({name: nn.Linear(width, width) for name in ("query", "key", "value")}),
            "output": nn.ModuleDict({"dense": nn.Linear(width, width), "LayerNorm": nn.LayerNorm(width, eps=1e-12)}),
        })  # fmt: skip
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, 4 * width)})
        self.output = nn.ModuleDict({"dense": nn.Linear(4 * width, width), "LayerNorm": nn.LayerNorm(width, eps=1e-12)})

    def forward(self, x, hidden):
        batch, tokens, width = x.shape
        q, k, v = (self.attention["self"][name](x).view(batch, tokens, self.heads, -1).transpose(1, 2) for name in ("query", "key", "value"))
        shares = (q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5).masked_fill(hidden[:, None, None], -1e9).softmax(-1)
        mixed = self.attention["output"]["dense"]((shares @ v).transpose(1, 2).reshape(x.shape))
        x = self.attention["output"]["LayerNorm"](x + mixed)
        return self.output["LayerNorm"](x + self.output["dense"](functional.gelu(self.intermediate["dense"](x))))


class Encoder(nn.Module):
    """all-MiniLM-L6-v2: a BERT of six layers; an embedding is the normalised mean over the tokens."""

    def __init__(self, arrays):
        super().__init__()
        words = arrays["embeddings.word_embeddings.weight"]
        width = words.shape[1]
        self.embeddings = nn.ModuleDict({
            "word_embeddings": nn.Embedding(*words.shape),
            "position_embeddings": nn.Embedding(*arrays["embeddings.position_embeddings.weight"].shape),
            "token_type_embeddings": nn.Embedding(*arrays["embeddings.token_type_embeddings.weight"].shape),
            "LayerNorm": nn.LayerNorm(width, eps=1e-12),
        })  # fmt: skip
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(Layer(width, 12) for _ in range(6))})
        self.put(arrays, all_of_them=True)

    def put(self, arrays, all_of_them=False):
        state = self.state_dict()
        if all_of_them and set(state) - set(arrays):
            raise SystemExit("sentences: the model has no tensor '%s'" % sorted(set(state) - set(arrays))[0])
        for name in state:
            if name in arrays:
                state[name].copy_(torch.from_numpy(arrays[name]))

    def forward(self, tokens):
        """[batch][tokens], 0 where a sentence has ended -> [batch][width]"""
        hidden = tokens == 0
        e = self.embeddings
        x = e["word_embeddings"](tokens) + e["position_embeddings"].weight[: tokens.shape[1]] + e["token_type_embeddings"].weight[0]
        x = e["LayerNorm"](x)
        for layer in self.encoder["layer"]:
            x = layer(x, hidden)
        return functional.normalize(x.masked_fill(hidden[..., None], 0).sum(1) / (~hidden).sum(1, keepdim=True), dim=1)


class Words:
    """WordPiece: the longest piece of the vocabulary first."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.number = {line.rstrip("\n"): i for i, line in enumerate(file)}

    def pieces(self, word):
        begin, found = 0, []
        while begin < len(word):
            end = len(word)
            while end > begin and ("##" if begin else "") + word[begin:end] not in self.number:
                end -= 1
            if end == begin:
                return [self.number["[UNK]"]]
            found.append(self.number[("##" if begin else "") + word[begin:end]])
            begin = end
        return found

    def tokens(self, sentence):
        body = [n for word in re.findall(r"[a-z0-9]+|[^\sa-z0-9]", sentence.lower()) for n in self.pieces(word)]
        return [self.number["[CLS]"]] + body[: LONGEST - 2] + [self.number["[SEP]"]]


def sentences_of(path, count):
    """`count` different sentences of ordinary length, evenly from all of the text."""
    with open(path, encoding="utf-8", errors="ignore") as file:
        text = re.sub(r"\s+", " ", file.read())
    found = [s for s in dict.fromkeys(re.findall(r"(?<=[.] )[A-Z][a-z]+ [a-zA-Z ,;'-]{40,160}[.](?= )", text))]
    if len(found) < count:
        raise SystemExit("sentences: '%s' has %d sentences, %d are needed" % (path, len(found), count))
    return [found[i * len(found) // count] for i in range(count)]


def ranks(x):
    return x.argsort(dim=1).argsort(dim=1).double()


def compare(before, after):
    """The four measures for embeddings [SENTENCES][width]."""
    similarity = float((before * after).sum(1).mean())
    one, two = (e[:QUESTIONS] @ e[QUESTIONS:].T for e in (before, after))
    a, b = (ranks(scores) - (scores.shape[1] - 1) / 2 for scores in (one, two))
    order = float(((a * b).sum(1) / (a * a).sum(1)).mean())
    first = float((one.argmax(1) == two.argmax(1)).double().mean())
    best = [set(row) for row in one.topk(10).indices.tolist()]
    ten = sum(len(set(row) & kept) for row, kept in zip(two.topk(10).indices.tolist(), best)) / (10.0 * QUESTIONS)
    return similarity, order, first, ten


def main():
    options = argparse.ArgumentParser(description="A real sentence model pruned in every way.")
    options.add_argument("--model", required=True, metavar="DIR")
    options.add_argument("--text", required=True, metavar="FILE")
    options.add_argument("--lacuna", default="lacuna", metavar="PROGRAM")
    options.add_argument("--csv", default="accuracy_sentences.csv", metavar="FILE")
    options.add_argument("--calibration", metavar="FILE.safetensors", help="keep the inputs that wanda and obs look at in this file")
    options.add_argument("--workers", type=int, default=os.cpu_count())
    options.add_argument("--resume", action="store_true", help="keep the rows of CSV, and make those that it lacks")
    options.add_argument("--only", action="append", default=[], metavar="PATTERN")
    options.add_argument("--commit", default="")
    args = options.parse_args()

    checkpoint = os.path.join(args.model, "model.safetensors")
    words = Words(os.path.join(args.model, "vocab.txt"))
    chosen = [words.tokens(sentence) for sentence in sentences_of(args.text, 2 * SENTENCES)]
    tokens = torch.zeros(len(chosen), LONGEST, dtype=torch.long)
    for i, sentence in enumerate(chosen):
        tokens[i, : len(sentence)] = torch.tensor(sentence)
    tokens = tokens.to(DEVICE)
    asked, shown = tokens[::2], tokens[1::2]

    dense = table_cells.read_safetensors(checkpoint)
    model = Encoder(dense).to(DEVICE).eval()
    embed = lambda: torch.cat([model(part) for part in asked.split(250)])
    begin = time.time()
    rows, known = table_cells.finished(args.csv, ("ten",)) if args.resume else ([], set())
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder, open(args.csv, "w", newline="") as file:
        before = embed()
        layers = collect.linear_layers(model)
        calibration = args.calibration or os.path.join(folder, "calibration.safetensors")
        collect.write_safetensors(calibration, collect.collect_inputs(model, shown.split(100), lambda m, x: m(x), layers, 4096))
        writer = csv.writer(file)
        writer.writerow("model,family,zeros,pattern,method,permute,similarity,order,first,ten,commit,device".split(","))
        writer.writerows(rows)
        cells = [c for c in table_cells.all_cells(("magnitude", "wanda", "obs")) if not args.only or c.pattern in args.only]
        cells = [c for c in cells if (c.pattern, c.method, c.permute) not in known]
        done = failed = 0
        for cell, path, error in table_cells.pruned(args.lacuna, checkpoint, calibration, ["encoder.layer.*.weight"], folder, cells, args.workers):
            if error:
                failed += 1
                print("%s: %s" % (cell, error), flush=True)
                continue
            model.put(dense)
            model.put(table_cells.read_safetensors(path))
            os.unlink(path)
            measures = ["%.4f" % value for value in compare(before, embed())]
            writer.writerow(["all-MiniLM-L6-v2", cell.family, cell.zeros, cell.pattern, cell.method, cell.permute, *measures, args.commit,
                             torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu"])  # fmt: skip
            file.flush()
            done += 1
    print("%d cells, %d failed, %.0f s" % (done, failed, time.time() - begin))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

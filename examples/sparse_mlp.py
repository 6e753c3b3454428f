"""sparse_mlp.py - trains a small PyTorch network, prunes it, trains on under the masks, compresses it: what each step costs and gains.

    python3 examples/sparse_mlp.py [--pattern vw8:2:8] [--width 512] [--steps 150] [--device cpu]

The task is made up: to tell 16 classes of noisy points apart. Needs PyTorch and the package `lacuna` (docs/python.md).
"""

import argparse

import torch
from torch import nn

import lacuna.torch

INPUTS, CLASSES = 64, 16


def points(count, generator, centres):
    """(x [count, INPUTS], class [count]) round the centres [CLASSES, INPUTS]."""
    label = torch.randint(0, CLASSES, (count,), generator=generator)
    return centres[label] + 2.4 * torch.randn(count, INPUTS, generator=generator), label


def accuracy(model, x, label):
    with torch.no_grad():
        return (model(x).argmax(1) == label).float().mean().item()


def train(model, steps, draw, masks):
    """`masks`: {layer's name: which weights stay}; what they drop stays zero."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        x, label = draw(256)
        nn.functional.cross_entropy(model(x), label).backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for name, mask in masks.items():
                model.get_submodule(name).weight.mul_(mask)


def main():
    options = argparse.ArgumentParser(description="Trains, prunes, trains on and compresses a small network.")
    options.add_argument("--pattern", default="vw8:2:8")
    options.add_argument("--width", type=int, default=512)
    options.add_argument("--steps", type=int, default=150)
    options.add_argument("--device", default="cpu")
    args = options.parse_args()

    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(CLASSES, INPUTS, generator=generator)

    def draw(count):
        x, label = points(count, generator, centres)
        return x.to(args.device), label.to(args.device)

    torch.manual_seed(1)
    layers = [nn.Linear(INPUTS, args.width), nn.ReLU(), nn.Linear(args.width, args.width), nn.ReLU(), nn.Linear(args.width, CLASSES)]
    model = nn.Sequential(*layers).to(args.device)
    test = draw(4096)
    train(model, args.steps, draw, {})
    print(f"dense             {accuracy(model, *test):.1%} right")

    inner = "2"  # the wide layer: the first has few inputs, the last few outputs
    report = lacuna.torch.sparsify(model, args.pattern, include=inner, keep_dense=True)
    print(f"pruned            {accuracy(model, *test):.1%} right")
    masks = {layer.name: torch.from_numpy(layer.mask.numpy()).to(args.device) for layer in report.pruned}
    train(model, args.steps // 2, draw, masks)
    print(f"trained on        {accuracy(model, *test):.1%} right")

    model.eval()
    report = lacuna.torch.sparsify(model, args.pattern, include=inner, method="as_is")
    print(f"compressed        {accuracy(model, *test):.1%} right\n\n{report}\n")
    print(lacuna.torch.benchmark(model, test[0][:256]))


if __name__ == "__main__":
    main()

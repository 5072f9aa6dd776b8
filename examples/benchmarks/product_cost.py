"""What a curvature product costs in gradients, for nets of several kinds.

    python examples/benchmarks/product_cost.py --out results.json

A gradient is a value and its gradient, on the same samples and through the same CUDA graphs. (The
paper's auto-encoder, and other ways to a product, are in torch_products.py.)
"""

from __future__ import annotations

from itertools import pairwise

import this_checkout  # noqa: F401
import torch
from torch import nn
from torch.nn import functional
from torch_products import median_seconds

import ksdmin
from examples.harness.device_script import arguments, origin, write

REPEATS = 30


class Attention(nn.Module):
    """A transformer encoder over tokens, and a linear layer on their mean."""

    def __init__(self, width: int = 64, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(tokens)).mean(1))


class Residual(nn.Module):
    """Two convolutions and their input, added."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.GroupNorm(4, channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second(functional.relu(self.norm(self.first(x))))


class Poisson(nn.Module):
    """The residual of -Laplace u = f, by torch.func's nested forward derivatives."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [2, 64, 64, 48, 48, 1]
        layers: list[nn.Module] = []
        for a, b in pairwise(sizes):
            layers += [nn.Linear(a, b), nn.Tanh()]
        self.net = nn.Sequential(*layers[:-1])

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        return -sum(self.second(points, axis) for axis in (0, 1))

    def second(self, points: torch.Tensor, axis: int) -> torch.Tensor:
        e = torch.zeros_like(points)
        e[:, axis] = 1.0

        def first(p: torch.Tensor) -> torch.Tensor:
            return torch.func.jvp(self.net, (p,), (e,))[1]

        return torch.func.jvp(first, (points,), (e,))[1]


class PoissonByGrad(Poisson):
    """The same by torch.autograd.grad, as most physics-informed nets are written."""

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        points = points.requires_grad_()
        u = self.net(points)
        (du,) = torch.autograd.grad(u.sum(), points, create_graph=True)
        laplace = torch.zeros_like(u)
        for axis in (0, 1):
            (ddu,) = torch.autograd.grad(du[:, axis].sum(), points, create_graph=True)
            laplace = laplace + ddu[:, axis : axis + 1]
        return -laplace


def convolutions() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(64 * 64, 10))


def residual_net() -> nn.Module:
    blocks = [Residual(32) for _ in range(3)]
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1), *blocks, nn.Flatten(), nn.Linear(32 * 256, 10)
    )


def cases(device: str):
    """Name, model, loss, inputs, targets."""
    generator = torch.Generator(device).manual_seed(0)
    images = torch.randn(512, 3, 32, 32, generator=generator, device=device)
    labels = torch.randint(10, (512,), generator=generator, device=device)
    tokens = torch.randint(100, (256, 32), generator=generator, device=device)
    points = torch.rand(1020, 2, generator=generator, device=device, dtype=torch.float64)
    f = 2 * torch.pi**2 * torch.sin(torch.pi * points).prod(1, keepdim=True)
    entropy, squares = nn.CrossEntropyLoss(), nn.MSELoss()
    yield "convolutions", convolutions(), entropy, images, labels
    yield "residual net", residual_net(), entropy, images, labels
    yield "transformer", Attention(), entropy, tokens, labels[:256]
    yield "physics, torch.func.jvp", Poisson().double(), squares, points, f
    yield "physics, autograd.grad", PoissonByGrad().double(), squares, points, f


def measure(model, loss, inputs, targets, device: str, precision: str, repeats: int) -> dict:
    torch.manual_seed(0)
    data = (inputs, targets)
    report = {}
    for curvature in ("gauss-newton", "hessian"):
        problem = ksdmin.from_torch(
            model.to(device), loss, data, curvature=curvature, precision=precision
        )
        x, v = problem.x0, torch.randn_like(problem.x0)
        product = problem.curvature(x)
        report[curvature] = median_seconds(lambda p=product, v=v: p(v), device, repeats)
        report["gradient"] = median_seconds(
            lambda q=problem, x=x: q.value_and_gradient(x), device, repeats
        )
        report[f"{curvature} in gradients"] = report[curvature] / report["gradient"]
    return report


def main() -> None:
    args = arguments(__doc__)
    report = origin(args)
    for precision in ("high", "highest") if args.device == "cuda" else ("highest",):
        for name, *case in cases(args.device):
            found = measure(*case, args.device, precision, args.repeats or REPEATS)
            report[f"{name}, {precision}"] = found
    write(report, args)


if __name__ == "__main__":
    main()

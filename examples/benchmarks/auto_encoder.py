"""The MNIST auto-encoder of the paper, trained by KSD, HF and Adam for equal seconds on one GPU.

    KSDMIN_DATA=folder python examples/benchmarks/auto_encoder.py --seconds 60 --out results.json

`folder` holds mnist/train-images-idx3-ubyte.gz and the same of t10k. The objective is
the cross-entropy summed over pixels + l2 / 2 |x|^2; the errors are the squared error summed over
pixels, the mean over cases. All start from Martens' sparse initialisation.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch_products import auto_encoder, environment

import ksdmin

L2 = 1e-5
INCOMING = 15  # weights of a unit that do not start at zero
RATES = (3e-4, 1e-3)  # of Adam
BATCH = 200
SOLVERS = {
    "ksd": {},
    "ksd, PAPER": {"options": ksdmin.PAPER | {"inner_maxiter": 30}},
    "hf": {"method": "hf"},
}


def images(name: str, device: str) -> torch.Tensor:
    folder = os.environ.get("KSDMIN_DATA")
    if folder is None:
        raise SystemExit(
            "set KSDMIN_DATA to the folder that holds mnist/train-images-idx3-ubyte.gz"
        )
    with gzip.open(Path(folder) / "mnist" / f"{name}-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)
    return torch.from_numpy(pixels / np.float32(255)).to(device)


def sparsely_initialised(seed: int) -> nn.Sequential:
    net, generator = auto_encoder(), torch.Generator().manual_seed(seed)
    for layer in net:
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
            for row in layer.weight.data:
                chosen = torch.randperm(len(row), generator=generator)[:INCOMING]
                row[chosen] = torch.randn(INCOMING, generator=generator)
    return net


@torch.no_grad()
def squared_error(net: nn.Module, data: torch.Tensor) -> float:
    parts = [float((torch.sigmoid(net(x)) - x).square().sum()) for x in data.split(10_000)]
    return sum(parts) / len(data)


class Watch:
    """Keeps parameters at seconds that grow by a quarter; errors are computed afterwards."""

    def __init__(self) -> None:
        self.kept: list[tuple[float, dict[str, float], torch.Tensor]] = []

    def __call__(self, seconds: float, x: torch.Tensor, **counts: float) -> None:
        if not self.kept or seconds >= 1.25 * self.kept[-1][0] + 0.5:
            self.kept.append((seconds, counts, x.detach().clone()))

    def end(self, seconds: float, x: torch.Tensor, **counts: float) -> None:
        """Keep the last point whatever the time."""
        self.kept.append((seconds, counts, x.detach().clone()))

    def errors(self, net: nn.Module, train: torch.Tensor, test: torch.Tensor) -> list[dict]:
        rows = []
        for seconds, counts, x in self.kept:
            nn.utils.vector_to_parameters(x, net.parameters())
            errors = {"train": squared_error(net, train), "test": squared_error(net, test)}
            rows.append({"seconds": round(seconds, 2), **counts, **errors})
        return rows


def by_ksdmin(name: str, seed: int, seconds: float, precision: str, train, watch) -> nn.Module:
    net, arguments = sparsely_initialised(seed).to(train.device), dict(SOLVERS[name])
    loss = nn.BCEWithLogitsLoss(reduction="sum")
    problem = ksdmin.from_torch(net, loss, (train, train), l2=L2, precision=precision)
    options = {**arguments.pop("options", {}), "maxtime": seconds, "maxiter": 1e9}

    def callback(intermediate_result) -> None:
        record = intermediate_result.record
        counts = {"products": record.nhev, "passes": round(record.passes, 1)}
        watch(record.seconds, intermediate_result.x, **counts)

    res = ksdmin.minimize(problem, rng=seed, callback=callback, options=options, **arguments)
    seconds = float(res.history["seconds"][-1])
    watch.end(seconds, res.x, products=res.nhev, passes=round(res.passes, 1))
    return net


def by_adam(rate: float, seed: int, seconds: float, train, watch) -> nn.Module:
    net = sparsely_initialised(seed).to(train.device)
    loss, steps = nn.BCEWithLogitsLoss(reduction="sum"), 0
    optimizer = torch.optim.Adam(net.parameters(), lr=rate, fused=train.is_cuda)
    begin = time.perf_counter()
    while (now := time.perf_counter() - begin) < seconds:
        for batch in train[torch.randperm(len(train), device=train.device)].split(BATCH):
            optimizer.zero_grad()
            penalty = sum(p.square().sum() for p in net.parameters())
            (loss(net(batch), batch) / len(batch) + L2 / 2 * penalty).backward()
            optimizer.step()
        steps += 1
        watch(now, nn.utils.parameters_to_vector(net.parameters()), passes=2 * steps)
    watch.end(now, nn.utils.parameters_to_vector(net.parameters()), passes=2 * steps)
    return net


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--methods", nargs="+", default=[*SOLVERS, "adam"])
    parser.add_argument("--precision", default="high", help="of KSD; HF has float32")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--commit", help="where it is measured without git")
    parser.add_argument("--out")
    args = parser.parse_args()
    train, test = images("train", args.device), images("t10k", args.device)
    report = {**environment(args.device, args.commit), "seed": args.seed, "runs": {}}
    for method in args.methods:
        for rate in RATES if method == "adam" else (None,):
            watch = Watch()
            if rate is not None:
                net = by_adam(rate, args.seed, args.seconds, train, watch)
            else:
                precision = "highest" if method == "hf" else args.precision
                net = by_ksdmin(method, args.seed, args.seconds, precision, train, watch)
            label = method if rate is None else f"adam, rate {rate:g}"
            report["runs"][label] = rows = watch.errors(net, train, test)
            print(label, rows[-1], flush=True)
    if args.out:
        Path(args.out).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

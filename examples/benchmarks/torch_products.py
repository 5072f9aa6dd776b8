"""How long a curvature product takes, in units of a gradient, and beside other ways to it.

The net is the paper's MNIST auto-encoder, 784-1000-500-250-30 and mirrored: 2.8 M parameters. Run

    python examples/benchmarks/torch_products.py --out results.json

on the machine to measure. On CUDA every time is the median of many runs between device events, in
one process; on the CPU the median of a few.
"""

from __future__ import annotations

import statistics
import time
from itertools import pairwise

import this_checkout  # noqa: F401
import torch
from torch import nn

import ksdmin
from examples.harness.device_script import arguments, origin, write

SIZES = (784, 1000, 500, 250, 30, 250, 500, 1000, 784)
CODE = 4  # the layer whose units are linear


def auto_encoder() -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, (fan_in, fan_out) in enumerate(pairwise(SIZES), start=1):
        layers.append(nn.Linear(fan_in, fan_out))
        if i not in (CODE, len(SIZES) - 1):
            layers.append(nn.Sigmoid())
    return nn.Sequential(*layers)


def pixels(n: int, device: str) -> torch.Tensor:
    """Images with MNIST's share of ink; times do not depend on what they show."""
    generator = torch.Generator(device).manual_seed(0)
    raw = torch.rand(n, 784, generator=generator, device=device)
    return torch.where(raw > 0.8, 5 * (raw - 0.8), 0.0)


def median_seconds(run, device: str, repeats: int) -> float:
    run()
    run()
    times = []
    for _ in range(repeats):
        if device == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            run()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / 1e3)
        else:
            begin = time.perf_counter()
            run()
            times.append(time.perf_counter() - begin)
    return statistics.median(times)


def hand_written(net: nn.Sequential, X: torch.Tensor, v: torch.Tensor):
    """Algorithm 1 of the paper for this very net: activations kept, every product in place."""
    linears = [layer for layer in net if isinstance(layer, nn.Linear)]
    squash = [i not in (CODE, len(linears)) for i in range(1, len(linears) + 1)]
    with torch.no_grad():
        activations = [X]
        for layer, squashed in zip(linears, squash, strict=True):
            h = layer(activations[-1])
            activations.append(torch.sigmoid(h) if squashed else h)
        slopes = [a * (1 - a) if s else None for a, s in zip(activations[1:], squash, strict=True)]
        p = torch.sigmoid(activations[-1])
        loss_hessian = p * (1 - p)

    @torch.no_grad()
    def product() -> torch.Tensor:
        at, tangent, out = 0, None, []
        for layer, a, slope in zip(linears, activations, slopes, strict=False):
            W1 = v[at : at + layer.weight.numel()].view_as(layer.weight)
            at += layer.weight.numel()
            b1 = v[at : at + layer.bias.numel()]
            at += layer.bias.numel()
            h1 = torch.addmm(b1, a, W1.T)
            if tangent is not None:
                h1 = torch.addmm(h1, tangent, layer.weight.T)
            tangent = h1 if slope is None else h1 * slope
        back = loss_hessian * tangent
        for layer, a, slope in zip(linears[::-1], activations[-2::-1], slopes[::-1], strict=True):
            back = back if slope is None else back * slope
            out += [back.sum(0), (back.T @ a).reshape(-1)]
            back = back @ layer.weight
        return torch.cat(out[::-1])

    return product


def eager_functional(net: nn.Sequential, X: torch.Tensor, v: torch.Tensor):
    """What one writes with torch.func: jvp, loss Hessian, vjp at every product."""
    named = {name: p.detach() for name, p in net.named_parameters()}
    sizes = [p.numel() for p in named.values()]
    pieces = torch.split(v, sizes)
    tangents = {k: t.view_as(p) for (k, p), t in zip(named.items(), pieces, strict=True)}

    def outputs(parameters):
        return torch.func.functional_call(net, parameters, (X,))

    def product() -> torch.Tensor:
        z, Jv = torch.func.jvp(outputs, (named,), (tangents,))
        p = torch.sigmoid(z)
        _, vjp = torch.func.vjp(outputs, named)
        (back,) = vjp(p * (1 - p) * Jv)
        return torch.cat([piece.reshape(-1) for piece in back.values()])

    return product


def captured(run):
    """`run` under a CUDA graph."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def matmul_floor(n: int, device: str, repeats: int) -> float:
    """The matrix products of a Gauss-Newton product alone: two forward, two backward per layer."""
    pairs = list(pairwise(SIZES))
    a = [torch.randn(n, i, device=device) for i, _ in pairs]
    h = [torch.randn(n, o, device=device) for _, o in pairs]
    W = [torch.randn(o, i, device=device) for i, o in pairs]

    def run() -> None:
        for k in range(len(pairs)):
            a[k] @ W[k].T
            h[k].T @ a[k]
            if k:
                a[k] @ W[k].T
                h[k] @ W[k]

    return median_seconds(captured(run) if device == "cuda" else run, device, repeats)


def measure(precision: str, n: int, device: str, repeats: int) -> dict[str, float]:
    torch.backends.cuda.matmul.allow_tf32 = precision == "high"
    net, X = auto_encoder().to(device), pixels(n, device)
    loss = nn.BCEWithLogitsLoss(reduction="sum")
    results: dict[str, float] = {}
    for curvature in ("gauss-newton", "hessian", "empirical-fisher", "fisher"):
        problem = ksdmin.from_torch(net, loss, (X, X), curvature=curvature, precision=precision)
        time_provider(problem, curvature, results, device, repeats)
    problem = ksdmin.from_torch(net, loss, (X, X), precision=precision)
    v = torch.randn_like(problem.x0)
    functional, written = eager_functional(net, X, v), hand_written(net, X, v)
    ours, reference = problem.curvature(problem.x0)(v) * n, functional()
    results["error of ours"] = float((ours - reference).norm() / reference.norm())
    results["error of hand-written"] = float((written() - reference).norm() / reference.norm())
    results["torch.func, eager"] = median_seconds(functional, device, repeats)
    run = captured(written) if device == "cuda" else written
    results["hand-written"] = median_seconds(run, device, repeats)
    results["matmul floor"] = matmul_floor(n, device, repeats)
    if device == "cpu":
        results.update(curvlinops_time(net, loss, X, v, repeats))
    torch.backends.cuda.matmul.allow_tf32 = False
    return results


def time_provider(problem, curvature: str, results: dict, device: str, repeats: int) -> None:
    x, v = problem.x0, torch.randn_like(problem.x0)
    product = problem.curvature(x)
    results[curvature] = median_seconds(lambda: product(v), device, repeats)
    results[f"{curvature} set-up"] = median_seconds(lambda: problem.curvature(x), device, repeats)
    if curvature == "gauss-newton":
        results["gradient"] = median_seconds(lambda: problem.value_and_gradient(x), device, repeats)


def curvlinops_time(net, loss, X, v, repeats) -> dict[str, float]:
    try:
        from curvlinops import GGNLinearOperator
    except ImportError:
        return {}
    operator = GGNLinearOperator(
        net, loss, list(net.parameters()), [(X, X)], check_deterministic=False
    )
    return {"curvlinops": median_seconds(lambda: operator @ v, "cpu", repeats)}


def iteration_seconds(precision: str, iterations: int, samples: int = 60_000) -> dict[str, float]:
    """One iteration of the paper's algorithm: A everything, |B| = |C| = 3000, K = 20."""
    X = pixels(samples, "cuda")
    torch.manual_seed(0)
    loss = nn.BCEWithLogitsLoss(reduction="sum")
    problem = ksdmin.from_torch(auto_encoder().cuda(), loss, (X, X), precision=precision, l2=1e-5)
    torch.cuda.reset_peak_memory_stats()
    options = {**ksdmin.PAPER, "maxiter": iterations}
    res = ksdmin.minimize(problem, subsets=samples, rng=0, options=options)
    seconds = res.history["seconds"]
    spent = [b - a for a, b in pairwise(seconds[3:])]
    evaluations = res.history["nfev"]
    peak = torch.cuda.max_memory_reserved()
    iteration, searched = statistics.median(spent), evaluations[-1] - evaluations[3] - len(spent)
    parts = iteration_parts(problem, samples // 20, dim=21, searches=searched / len(spent))
    return {
        "iteration": iteration,
        **parts,
        "overhead": 1 - sum(parts.values()) / iteration,
        "search evaluations": searched / len(spent),
        "peak memory (GB)": peak / 1e9,
        "its formula (GB)": memory_formula(problem, 20, samples, samples // 20) / 1e9,
        "value": res.fun,
    }


def memory_formula(problem, dim: int, chunk: int, size: int) -> float:
    """What the docstring of from_torch says, with |B| = |C| = size; both data are one tensor."""
    n, data = len(problem.x0), problem.subsets.n * SIZES[0] * 4
    activations = problem.bytes_per_sample * (3.4 * chunk + 4.2 * size + 2.5 * size)
    return data + 4 * n * (dim + 1 + 40) + activations


def iteration_parts(problem, size: int, dim: int, searches: float) -> dict[str, float]:
    """What an iteration cannot do without: the model's evaluations, and one pass over the basis.

    A pass: for each new vector the curvature with the others, and one orthogonalisation.
    """
    x, v = problem.x0, torch.randn_like(problem.x0)
    idx = torch.arange(size, device=x.device) * (problem.subsets.n // size)
    V, c = torch.randn(dim, len(x), device=x.device), torch.randn(dim, device=x.device)
    product = problem.curvature(x, idx)

    def seconds(run) -> float:
        return median_seconds(run, x.device.type, 20)

    def one_pass(k: int) -> None:
        V[:k] @ v
        V[:k] @ v
        v - c[:k] @ V[:k]

    return {
        "of it: gradient and diagonal on A": seconds(
            lambda: problem.value_and_gradient(x, diagonal=True)
        ),
        "of it: products": dim * seconds(lambda: product(v))
        + seconds(lambda: problem.curvature(x, idx)),
        "of it: search": searches * seconds(lambda: problem.value_and_gradient(x, idx)),
        "of it: one pass over the basis": sum(
            seconds(lambda k=k: one_pass(k)) for k in range(1, dim + 1)
        ),
    }


def main() -> None:
    args = arguments(__doc__)
    cuda = args.device == "cuda"
    n, repeats = args.samples or (3000 if cuda else 2000), args.repeats or (50 if cuda else 3)
    report: dict[str, object] = {**origin(args), "samples": n}
    for precision in ("high", "highest") if cuda else ("highest",):
        report[precision] = measure(precision, n, args.device, repeats)
        if cuda:
            report[precision] |= iteration_seconds(precision, 15)  # type: ignore[operator]
    write(report, args)


if __name__ == "__main__":
    main()

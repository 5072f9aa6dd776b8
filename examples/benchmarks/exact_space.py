"""The exact space for residuals beside Krylov spaces: what its parts cost, and what it gains.

    python -m examples.benchmarks.exact_space --device cuda --seconds 20
    python -m examples.benchmarks.exact_space --problems poisson-257 fit --cpu-clock --seconds 10

Each line is one problem (2d Poisson with nets of three sizes, a precision fit) and one method: KSD
as it is, KSD without the exact space, and naive Levenberg-Marquardt with the same Jacobian, for the
same seconds: iterations, evaluations, Jacobians or products, final loss.
"""

import argparse
import itertools
import math
import time

import torch
from torch import nn

import ksdmin

WIDTHS = {
    "poisson-257": (64,),
    "poisson-9873": (64, 64, 48, 48),
    "poisson-116097": (256, 256, 128, 128),
}


def perceptron(*widths, device):
    torch.manual_seed(0)
    layers = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
    parts = [part for layer in layers for part in (layer, nn.Tanh())]
    return nn.Sequential(*parts[:-1]).double().to(device)


def poisson(widths, device):
    """-Lap u = 2 pi^2 sin(pi x) sin(pi y), u = 0 on the border of the unit square."""
    rng = torch.Generator().manual_seed(1)
    inside = torch.rand(900, 2, generator=rng, dtype=torch.float64).to(device)
    along, side = torch.rand(120, generator=rng, dtype=torch.float64), torch.arange(120) % 4
    level = (side % 2).double()
    border = torch.where((side < 2)[:, None], torch.stack([along, level], 1),
                         torch.stack([level, along], 1)).to(device)  # fmt: skip

    def second(net, x, axis):
        v = torch.zeros_like(x)
        v[:, axis] = 1
        return torch.func.jvp(lambda x: torch.func.jvp(net, (x,), (v,))[1], (x,), (v,))[1]

    def equation(net, x):
        force = 2 * math.pi**2 * torch.sin(math.pi * x).prod(1, keepdim=True)
        return second(net, x, 0) + second(net, x, 1) + force

    blocks = [(equation, inside, 0.5), (lambda net, x: net(x), border, 0.5)]
    return ksdmin.from_torch(perceptron(2, *widths, 1, device=device), residuals=blocks)


def precision_fit(device, samples=2000):
    """A small net that is to repeat a smaller one."""
    x = torch.linspace(-1, 1, samples, dtype=torch.float64, device=device)[:, None]
    teacher = perceptron(1, 3, 3, 1, device=device)
    for parameter in teacher.parameters():
        nn.init.normal_(parameter, generator=torch.Generator(device).manual_seed(2))
    net = perceptron(1, 20, 20, 1, device=device)
    return ksdmin.from_torch(net, nn.MSELoss(), (x, teacher(x).detach()))


def made(name, device):
    return precision_fit(device) if name == "fit" else poisson(WIDTHS[name], device)


def milliseconds(call, device, runs=5):
    """The shortest of some runs; the first, which may capture a graph, does not count."""
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return min(times[1:])


def parts(problem, device):
    """What the verbs cost, and the algebra of an exact space."""
    x = problem.x0
    product, J = problem.curvature(x), problem.jacobian(x)
    small = J.rows @ J.rows.T if len(J.rows) < len(x) else J.rows.T @ J.rows
    shifted = small + torch.eye(len(small)).to(small)
    return {
        "gradient": milliseconds(lambda: problem.value_and_gradient(x), device),
        "product": milliseconds(lambda: product(x), device),
        "jacobian": milliseconds(lambda: problem.jacobian(x), device),
        "matrix": milliseconds(lambda: problem.matrix(x), device) if len(x) < 20_000 else math.nan,
        "gram": milliseconds(lambda: J.rows @ J.rows.T, device),
        "cholesky": milliseconds(lambda: torch.linalg.cholesky(shifted), device),
    }


def ksd(problem, seconds, clock, without):
    end = clock() + seconds

    def stop(intermediate_result):
        if clock() > end:
            raise StopIteration

    options = {"gtol": 0.0, "maxiter": 10**6, "without": without}
    res = ksdmin.minimize(problem, callback=stop, rng=0, options=options)
    return res.nit, res.nfev, res.nhev, res.fun


def levenberg_marquardt(problem, seconds, clock):
    """Naive: one damping, a third or thrice of it after a good or a bad step."""
    end, x, damping, steps, values = clock() + seconds, problem.x0, 1e-2, 0, 1
    f, g = problem.value_and_gradient(x)
    while clock() < end and damping < 1e12:
        R, r, _ = problem.jacobian(x)
        by_rows = len(R) < len(x)
        gram, steps = (R @ R.T if by_rows else R.T @ R), steps + 1
        while clock() < end and damping < 1e12:
            L, info = torch.linalg.cholesky_ex(gram + damping * torch.eye(len(gram)).to(gram))
            d = torch.cholesky_solve((r if by_rows else g)[:, None], L)[:, 0]
            there = x - (d @ R if by_rows else d)
            value, slope = problem.value_and_gradient(there)
            values += 1
            if not int(info) and value < f:
                x, f, g, damping = there, value, slope, max(damping / 3, 1e-16)
                break
            damping *= 3
    return steps, values, steps, f


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="+", default=[*WIDTHS, "fit"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--cpu-clock", action="store_true", help="seconds of the processor")
    given = parser.parse_args()
    clock = time.process_time if given.cpu_clock else time.perf_counter
    for name in given.problems:
        problem = made(name, given.device)
        costs = parts(problem, given.device)
        print(name, "ms:", "  ".join(f"{part} {ms:.2f}" for part, ms in costs.items()), flush=True)
        methods = {
            "ksd": lambda p: ksd(p, given.seconds, clock, []),
            "ksd, Krylov only": lambda p: ksd(p, given.seconds, clock, ["exact_space"]),
            "Levenberg-Marquardt": lambda p: levenberg_marquardt(p, given.seconds, clock),
        }
        for label, method in methods.items():
            steps, values, curvatures, loss = method(made(name, given.device))
            print(f"  {label:20} {steps:5} {values:6} {curvatures:6}  loss {loss:.2e}", flush=True)


if __name__ == "__main__":
    main()

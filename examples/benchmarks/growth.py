"""What KSD itself takes: nanoseconds per element and product as n and K grow, and memory.

    python examples/benchmarks/growth.py
    python examples/benchmarks/growth.py --table

The seconds of a run of some iterations, less those inside the function, by the products and by n:
where they stay the same as n grows, the algebra is linear in n; where they stay the same as K
grows, a product costs as much in a wide space as in a narrow one. "default" is a run as users get
it, with the K that it chooses and steps that take no product.

Memory is the peak that Python's tracemalloc sees during a run, in vectors of length n, beside the
formula of docs/how.md; the few vectors of the function itself are in it.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import one_thread  # noqa: F401
import this_checkout  # noqa: F401

# isort: split
import numpy as np

import ksdmin
from examples.benchmarks.cheap_functions import families
from examples.benchmarks.comparison.timed_functions import TimedFunctions
from examples.harness.provenance import provenance
from examples.harness.store import Run, Store
from examples.harness.tables import markdown, number, origins

RESULT = Path(__file__).parent / "results" / "growth.json"
IDENTITY = ("kind", "n", "K", "case")
SIZES = (1_000, 10_000, 100_000, 1_000_000)
DIMENSIONS = (10, 20, 50, 100)
ITERATIONS, SHORT, REPETITIONS = 4, 1.0, 3  # of a run; seconds of one that is repeated; so often
ENDS_EARLY = ("forcing", "quasi-newton")  # without these every iteration has K products
NEVER = 1e9
MEMORY_N, SAMPLES, MEMORY_ITERATIONS = 20_000, 100_000, 60
# K, m, pairs: the default on a whole set, a small one, one without a quasi-Newton model
WHOLE_CASES = ((100, 1, 40), (20, 5, 10), (50, 1, 0))
SAMPLE_CASES = ((20, 5, 40), (50, 2, 0))


# --- Seconds ---


def spent(n: int, K: int | None) -> dict:
    """The seconds outside the function, and the products; `K` None: the default."""
    functions = TimedFunctions(families.make("quartic", n), NEVER)
    functions.target = -1.0  # it is not to end before its last iteration
    options: dict = {"gtol": 0.0, "maxiter": ITERATIONS}
    if K is not None:
        options |= {"krylov_dim": K, "without": ENDS_EARLY}
    call = {"jac": functions.jac, "hessp": functions.hessp, "options": options}
    functions.clock.start()
    ksdmin.minimize(functions.fun, functions.problem.x0, **call)
    found = functions.end()
    return {"products": found["nh"], "own": found["seconds"] - found["inside"]}


def algebra(n: int, K: int | None) -> Run:
    """The least of several short runs, the first of which warms up."""
    best = spent(n, K)
    for _ in range(REPETITIONS if best["own"] < SHORT else 0):
        best = min(best, spent(n, K), key=lambda run: run["own"])
    ns = 1e9 * best["own"] / (n * max(1, best["products"]))
    own = float(f"{best['own']:.4g}")
    return {"kind": "algebra", "n": n, "K": K, "case": "", "own": own} | {
        "products": best["products"],
        "ns": float(f"{ns:.4g}"),
    }


# --- Memory ---


def documented(K: int, m: int, pairs: int, whole: bool) -> int:
    """Vectors of length n, as docs/how.md has it."""
    return K + 2 * m + (K + m + 2 * pairs if whole and pairs else 0)


def peak(n: int, run: Callable[[], object]) -> float:
    """In vectors of length n."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        run()
        return (tracemalloc.get_traced_memory()[1] - before) / (8 * n)
    finally:
        tracemalloc.stop()


def on_whole_set(n: int, options: dict) -> object:
    problem = families.make("quartic", n)
    derivatives = {"jac": problem.gradient, "hessp": lambda x, p: problem.hessian(x) @ p}
    return ksdmin.minimize(problem.value, problem.x0, options=options, **derivatives)


def on_samples(n: int, options: dict) -> object:
    """The mean of d (x - c_i)^2 / 2 over the samples i: no set of them takes memory."""
    d = np.geomspace(1.0, 1e4, n)
    c = np.random.default_rng(0).standard_normal(SAMPLES)
    return ksdmin.minimize(
        lambda x, idx: float(d @ (x - c[idx].mean()) ** 2) / 2,
        np.ones(n),
        jac=lambda x, idx: d * (x - c[idx].mean()),
        hessp=lambda x, p, idx: d * p,
        subsets=SAMPLES,
        rng=0,
        options=options | {"without": ["set_sizes"]},
    )


def memory(n: int, sizes: tuple[int, int, int], whole: bool) -> Run:
    K, m, pairs = sizes
    options = {"krylov_dim": K, "memory": m, "pairs": pairs, "maxiter": MEMORY_ITERATIONS}
    run = on_whole_set if whole else on_samples
    run(min(n, 100), options)  # what is loaded or kept for good is not of this run
    vectors = peak(n, lambda: run(n, options))
    case = f"{'whole set' if whole else 'samples'}, K = {K}, memory = {m}, pairs = {pairs}"
    return {"kind": "memory", "n": n, "K": K, "case": case, "vectors": round(vectors, 1)} | {
        "documented": documented(K, m, pairs, whole)
    }


# --- Tables and the command ---


def report(runs: Sequence[Run]) -> str:
    of = {(run["n"], run["K"]): run["ns"] for run in runs if run["kind"] == "algebra"}
    columns = sorted({K for _, K in of}, key=lambda K: (K is None, K))
    header = ["n", *("default" if K is None else f"K = {K}" for K in columns)]
    rows = [
        [f"{n:,}", *(number(of.get((n, K), float("nan")), ".3g") for K in columns)]
        for n in sorted({n for n, _ in of})
    ]
    kept = [run for run in runs if run["kind"] == "memory"]
    sizes = [[run["case"], f"{run['vectors']:.0f}", f"{run['documented']}"] for run in kept]
    return "\n\n".join(
        [
            "Own algebra: nanoseconds per element and product.",
            markdown(header, rows, numbers=True),
            "Peak memory of a run, in vectors of length n.",
            markdown(["run", "measured", "docs/how.md"], sizes, numbers=True),
            f"Measured on {origins(runs, '{hardware}, {date}, {commit}')}.",
        ]
    )


def measure(args: argparse.Namespace) -> None:
    store, origin = Store(args.out, IDENTITY), provenance("numpy", commit=args.commit)
    for n in (n for n in SIZES if n <= args.largest):
        for K in (*args.dimensions, None):
            begin = time.perf_counter()
            store.add(done := algebra(n, K) | origin)
            took = time.perf_counter() - begin
            print(
                f"n = {n:,}, K = {K or 'default'}: {done['ns']:.3g} ns ({took:.1f} s)", flush=True
            )
    cases = [(sizes, True) for sizes in WHOLE_CASES] + [(sizes, False) for sizes in SAMPLE_CASES]
    for sizes, whole in cases:
        store.add(done := memory(args.memory_n, sizes, whole) | origin)
        print(f"{done['case']}: {done['vectors']} vectors", flush=True)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="of n")
    parser.add_argument("--dimensions", type=int, nargs="+", default=DIMENSIONS, metavar="K")
    parser.add_argument("--memory-n", type=int, default=MEMORY_N, help="n of the memory's runs")
    parser.add_argument("--out", type=Path, default=RESULT, help="JSON, which runs are added to")
    parser.add_argument("--commit", help="that of ksdmin, where it is no checkout")
    parser.add_argument("--table", action="store_true", help="print the file as Markdown, run none")
    args = parser.parse_args(given)
    if args.table:
        print(report(Store(args.out, IDENTITY).runs))
    else:
        measure(args)


if __name__ == "__main__":
    main()

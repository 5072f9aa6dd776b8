"""Logistic and softmax regression: KSD beside L-BFGS-B, Newton-CG and trust-krylov.

    KSDMIN_DATA=folder python examples/benchmarks/regression.py
    python examples/benchmarks/regression.py --table

The objective is the mean loss + l2 / 2 |w|^2 from w = 0. The gap is (f - f*) / (f(0) - f*) on all
samples; a value or a gradient on all samples is one pass, a product two. Every run is kept in
results/regression as soon as it ends: one that is there is not repeated, those of ksdmin unless
its code has changed. All methods have one thread.

Trying out a change of ksdmin:

    ... --only ksd --data a9a mnist-parity --l2 1e-4 1e-6 --out /tmp/memory2 \
        --options '{"memory": 2}'
    ... --table --out /tmp/memory2
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path

import this_checkout  # noqa: F401
from threadpoolctl import threadpool_limits

from examples.benchmarks.regression_suite import (
    data_sets,
    kept_runs,
    optima,
    ratio_tables,
    solver_runs,
)
from examples.data.data_files import MissingData
from examples.harness.provenance import package_commit, provenance
from examples.harness.store import Run


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = [*solver_runs.KSD, *solver_runs.SCIPY]
    parser.add_argument("--only", nargs="+", choices=known, default=solver_runs.DEFAULT)
    parser.add_argument("--data", nargs="+", choices=data_sets.SETS, default=list(data_sets.SETS))
    parser.add_argument("--l2", nargs="+", type=float, default=data_sets.L2)
    parser.add_argument("--seeds", nargs="+", type=int, default=solver_runs.SEEDS, help="of ksd")
    parser.add_argument("--options", type=json.loads, default={}, help="JSON, of the method")
    parser.add_argument(
        "--cap", type=float, default=solver_runs.CAP, help="passes that a run may take"
    )
    parser.add_argument("--again", action="store_true", help="repeat runs that are there")
    parser.add_argument("--table", action="store_true", help="run nothing, print Markdown")
    parser.add_argument(
        "--out",
        type=Path,
        default=kept_runs.RESULTS,
        help="folder; what is not there is looked up in results/regression",
    )
    return parser


def optimum_of(name: str, l2: float) -> Run:
    """The least value, computed when it is first asked for."""
    store = kept_runs.optima()
    known = store.find(data=name, l2=l2)
    if known is None:
        known = {"data": name, "l2": l2, **optima.optimum(data_sets.problem(name, l2))}
        store.add(known)
        print(f"optimum {known}", flush=True)
    return known


def perform(method: str, name: str, l2: float, seed: int | None, args: argparse.Namespace) -> Run:
    """One run, as it is stored."""
    problem, optimum = data_sets.problem(name, l2), optimum_of(name, l2)
    run = solver_runs.run(method, problem, optimum, seed, args.options, args.cap)
    return {"data": name, "l2": l2, "seed": seed, **run, **provenance(commit=package_commit())}


def run_all(args: argparse.Namespace) -> None:
    commit = package_commit()
    for method in args.only:
        of_ksd = method in solver_runs.KSD
        for name, l2, seed in product(args.data, args.l2, args.seeds if of_ksd else (None,)):
            store = kept_runs.runs_of(method, args.out)
            run = store.find(data=name, l2=l2, seed=seed)
            if args.again or not kept_runs.is_current(run, of_ksd, commit):
                run = perform(method, name, l2, seed, args)
                store.add(run)
            print(ratio_tables.line(method, run), flush=True)


@threadpool_limits.wrap(limits=1)  # so that times compare on a busy machine too
def main() -> None:
    args = arguments().parse_args()
    if args.table:
        report = ratio_tables.report(args.out, args.data, args.l2)
        if (list(args.data), tuple(args.l2)) == (list(data_sets.SETS), data_sets.L2):
            (args.out / "table.md").write_text(report + "\n")
        print(report)
        return
    try:
        run_all(args)
    except MissingData as error:  # the message says all; a traceback would hide it
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()

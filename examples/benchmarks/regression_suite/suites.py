"""A suite of problems: its data sets, where its runs are kept, and how they are performed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from examples.benchmarks.regression_suite import (
    data_sets,
    kept_runs,
    large_sets,
    loss_sets,
    optima,
    ratio_tables,
    solver_runs,
)
from examples.benchmarks.regression_suite.linear_model import LinearModel
from examples.data.data_files import MissingData
from examples.harness.provenance import package_commit, provenance
from examples.harness.store import Run


@dataclass(frozen=True)
class Suite:
    """Problems, each of a data set and a weight of |w|^2 / 2.

    Attributes
    ----------
    names : tuple of str
        The data sets.
    l2 : tuple of float
        The weights.
    problem : callable
        (name, l2) -> the problem.
    methods : tuple of str
        That are compared.
    results : Path
        Where the runs and the least values are kept.
    """

    names: tuple[str, ...]
    l2: tuple[float, ...]
    problem: Callable[[str, float], LinearModel]
    methods: tuple[str, ...]
    results: Path

    def arguments(self, doc: str) -> argparse.ArgumentParser:
        """The command line of a script with the docstring `doc`."""
        parser = argparse.ArgumentParser(description=doc.splitlines()[0])
        known = [*solver_runs.KSD, *solver_runs.SCIPY]
        add = parser.add_argument
        add("--only", nargs="+", choices=known, default=self.methods)
        add("--data", nargs="+", choices=self.names, default=list(self.names))
        add("--l2", nargs="+", type=float, default=self.l2)
        add("--seeds", nargs="+", type=int, default=solver_runs.SEEDS, help="of ksd")
        add("--options", type=json.loads, default={}, help="JSON, of the method")
        add("--cap", type=float, default=solver_runs.CAP, help="passes that a run may take")
        add("--again", action="store_true", help="repeat runs that are there")
        add("--table", action="store_true", help="run nothing, print Markdown")
        help_out = f"folder; what is not there is looked up in results/{self.results.name}"
        add("--out", type=Path, default=self.results, help=help_out)
        return parser

    def run_all(self, args: argparse.Namespace) -> None:
        """The runs that `args` ask for, but for those that are there."""
        try:
            self._run_all(args)
        except MissingData as error:  # the message says all; a traceback would hide it
            raise SystemExit(str(error)) from None

    def _run_all(self, args: argparse.Namespace) -> None:
        commit = package_commit()
        for method in args.only:
            of_ksd = method in solver_runs.KSD
            for name, l2, seed in product(args.data, args.l2, args.seeds if of_ksd else (None,)):
                store = kept_runs.runs_of(method, args.out)
                run = store.find(data=name, l2=l2, seed=seed)
                if args.again or not kept_runs.is_current(run, of_ksd, commit):
                    run = self._perform(method, name, l2, seed, args)
                    store.add(run)
                print(ratio_tables.line(method, run), flush=True)

    def _perform(
        self, method: str, name: str, l2: float, seed: int | None, args: argparse.Namespace
    ) -> Run:
        """One run, as it is stored."""
        problem, optimum = self.problem(name, l2), self.optimum_of(name, l2)
        run = solver_runs.run(method, problem, optimum, seed, args.options, args.cap)
        return {"data": name, "l2": l2, "seed": seed, **run, **provenance(commit=package_commit())}

    def optimum_of(self, name: str, l2: float) -> Run:
        """The least value, computed when it is first asked for."""
        store = kept_runs.optima(self.results)
        known = store.find(data=name, l2=l2)
        if known is None:
            known = {"data": name, "l2": l2, **optima.optimum(self.problem(name, l2))}
            store.add(known)
            print(f"optimum {known}", flush=True)
        return known


REGRESSION = Suite(
    tuple(data_sets.SETS),
    data_sets.L2,
    data_sets.problem,
    solver_runs.DEFAULT,
    kept_runs.RESULTS,
)
LOSSES = Suite(
    tuple(loss_sets.SETS),
    loss_sets.L2,
    loss_sets.problem,
    ("ksd", "L-BFGS-B"),
    kept_runs.RESULTS.with_name("losses"),
)
MANY_SAMPLES = Suite(
    tuple(large_sets.SETS),
    large_sets.L2,
    large_sets.problem,
    ("ksd", "ksd-everything", "L-BFGS-B"),
    kept_runs.RESULTS.with_name("many_samples"),
)

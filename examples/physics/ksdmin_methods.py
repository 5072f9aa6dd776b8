"""ksdmin's own methods, and SciPy's through it. What they are given is all here.

`gtol` is 0: every run uses all its seconds. (Its default, 1e-5, would end some of them early: the
gradient of a mean of squares is as small as the residuals are.) HF has all points in every set, KSD
as many as it chooses.
"""

from __future__ import annotations

from typing import Any

import ksdmin
from examples.harness.net_training.instrumented_problems import Counted
from examples.harness.net_training.run_reports import report_last, reporting_to
from examples.physics.training import Train, Training

NO_LIMIT = 10**9
KSD = {"gtol": 0.0, "maxiter": NO_LIMIT}
HF = {"gtol": 0.0, "maxiter": NO_LIMIT}
BFGS = {"gtol": 0.0, "maxiter": NO_LIMIT}
LBFGSB = {"gtol": 0.0, "ftol": 0.0, "maxcor": 100, "maxiter": NO_LIMIT, "maxfun": NO_LIMIT}
WHOLE_SETS = {"ksd": False, "hf": True}  # False: the sizes that ksdmin chooses


def by_ksdmin(method: str, fixed: dict[str, Any]) -> Train:
    """KSD or HF, with ksdmin's defaults but for what is said above."""

    def train(training: Training) -> str:
        recorder, problem = training.recorder, training.problem
        options = {**fixed, **training.options}
        whole = options.pop("whole_sets", WHOLE_SETS[method])
        n = problem.subsets.n
        subsets = ksdmin.Subsets(n, 1.0, 1.0, 1.0, disjoint=False) if whole else None

        recorder.start(training.x0)
        res = ksdmin.minimize(
            problem,
            method=method,
            bounds=training.bounds if method == "ksd" else None,  # HF knows none
            subsets=subsets,
            rng=training.seed,
            callback=reporting_to(recorder),
            options=options,
        )
        report_last(recorder, res)
        return str(recorder.spent() or res.message)

    return train


def by_scipy(method: str, fixed: dict[str, Any]) -> Train:
    """A method of SciPy's with flat vectors on the host; it is not restarted when it ends."""

    def train(training: Training) -> str:
        recorder = training.recorder

        def callback(intermediate_result: Any) -> None:
            recorder.work.iterations += 1
            recorder.see(intermediate_result.x)
            if recorder.spent():
                raise StopIteration

        recorder.start(training.x0)
        res = ksdmin.minimize(
            Counted(training.problem, recorder.work),
            method=method,
            bounds=training.bounds,
            callback=callback,
            options={**fixed, **training.options},
        )
        recorder.see(res.x, last=True)
        return str(recorder.spent() or res.message)

    return train

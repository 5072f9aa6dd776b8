"""ksdmin's own methods: KSD by default, KSD as in the paper, HF.

KSD as in the paper and HF have the Fisher diagonal for a preconditioner, as the paper says; by
default both take Kronecker factors today."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ksdmin
from examples.harness.net_training.instrumented_problems import Timed, problem_of
from examples.harness.net_training.method_interface import Outcome, Settings
from examples.harness.net_training.point_recorder import PointRecorder
from examples.harness.net_training.run_reports import report_last, reporting_to
from examples.harness.net_training.training import Training

INNER = 30  # iterations of the paper's inner BFGS
NO_LIMIT = 10**9


def train_by_ksd(precond: str | None = "auto", **options: Any) -> Callable[..., Outcome]:
    """Krylov Subspace Descent with ksdmin's defaults, but for these options."""

    def train(training: Training, recorder: PointRecorder, settings: Settings) -> Outcome:
        return _by_ksdmin("ksd", precond, options, {}, training, recorder, settings)

    return train


def train_as_in_paper(precond: str | None = "diagonal") -> Callable[..., Outcome]:
    """The paper's configuration: A everything, B and C disjoint with 1/K of the samples each."""

    def train(training: Training, recorder: PointRecorder, settings: Settings) -> Outcome:
        K = settings.krylov_dim
        options = ksdmin.PAPER | {"krylov_dim": K, "inner_maxiter": INNER}
        sizes = {"curvature": 1 / K, "search": 1 / K}
        return _by_ksdmin("ksd", precond, options, sizes, training, recorder, settings)

    return train


def train_by_hf(precond: str) -> Callable[..., Outcome]:
    """Martens' Hessian-free method."""

    def train(training: Training, recorder: PointRecorder, settings: Settings) -> Outcome:
        sizes = {"curvature": settings.hf_share, "search": 1, "disjoint": False}
        options = {"damping": settings.hf_damping}
        return _by_ksdmin("hf", precond, options, sizes, training, recorder, settings)

    return train


def _by_ksdmin(
    method: str,
    precond: str | None,
    options: Mapping[str, Any],
    sizes: Mapping[str, Any],
    training: Training,
    recorder: PointRecorder,
    settings: Settings,
) -> Outcome:
    problem: Any = problem_of(training, settings, precond)
    if settings.profile:
        problem = Timed(problem)
    own = dict(settings.options)
    sizes = {**sizes, **own.pop("subsets", {})}
    subsets = ksdmin.Subsets(len(training.data.train), **sizes) if sizes else None
    limits = {"maxtime": recorder.seconds, "maxiter": NO_LIMIT}

    recorder.start(problem.x0)
    res = ksdmin.minimize(
        problem,
        method=method,
        subsets=subsets,
        rng=training.seed,
        callback=reporting_to(recorder),
        options={**options, **limits, **own},
    )
    report_last(recorder, res)
    shares = problem.shares(recorder.elapsed) if settings.profile else None
    return Outcome(recorder.spent() or res.message, shares)

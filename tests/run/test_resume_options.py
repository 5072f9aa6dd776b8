"""Every option of a run holds after it was saved and resumed."""

from dataclasses import fields

import numpy as np
import pytest

import ksdmin
from ksdmin import HFOptions, Options, Status
from tests.run import runs
from tests.run.comparison import assert_same

START = float(np.sum(runs.X0))
CUT = 2  # iterations before the run is broken off
NOT_SAVED = ("checkpoint", "validation")  # the user brings them again

# For each option a value that is not the default, and that the run notices.
VALUES = {
    "maxiter": 7,
    "maxfun": 25,
    "maxtime": 1e6,
    "gtol": 1e-1,
    "gtol_rel": 1e-2,
    "ftol": 1e-2,
    "xtol": 1e-2,
    "fmin": 0.5,
    "validation": lambda x: -1 / (1 + abs(float(np.sum(x)) - START)),  # lowest at once
    "patience": 2,
    "average": 0.5,
    "history": 4,
    "disp": True,
    "progress": False,
    "return_all": True,
    "checkpoint": "run.ksd",
    "checkpoint_every": 2,
    "krylov_dim": 2,
    "memory": 1,
    "memory_budget": 4096.0,
    "pairs": 2,
    "floor": 1e-2,
    "diagonal_power": 0.5,
    "damping": 3.0,
    "inner_maxiter": 1,
    "preset": "paper",
    "without": ("quasi-newton",),
}
NAMES = [
    (method, field.name)
    for method, kind in {"ksd": Options, "hf": HFOptions}.items()
    for field in fields(kind)
]


def test_a_new_option_needs_a_value_here():
    assert {name for _, name in NAMES} == VALUES.keys()


@pytest.mark.parametrize(("method", "name"), NAMES)
@pytest.mark.filterwarnings("ignore::scipy.optimize.OptimizeWarning")  # of disp
def test_an_option_holds_after_a_resume(method, name, tmp_path):
    run = runs.samples
    options = {"maxiter": 12, "gtol": 1e-8, name: VALUES[name]}
    if name == "patience":
        options["validation"] = VALUES["validation"]
    if name == "checkpoint":
        options["checkpoint"] = tmp_path / VALUES["checkpoint"]
    arguments = {**run(), "method": method, "rng": 0}
    whole = ksdmin.minimize(**{**arguments, "options": options})
    options.pop("checkpoint", None)
    solver = ksdmin.Solver(**{**arguments, "options": options})
    for _ in range(min(CUT, whole.nit)):
        next(solver)
    path = tmp_path / "cut.ksd"
    solver.save(path)
    brought = {key: options[key] for key in NOT_SAVED if key in options}
    assert_same(ksdmin.resume(path, run()["fun"], options=brought), whole)


def test_patience_may_be_changed_and_taken_back(tmp_path):
    path = tmp_path / "run.ksd"
    options = {"validation": VALUES["validation"], "patience": 2, "maxiter": 3}
    solver = ksdmin.Solver(**{**runs.rosenbrock(), "options": options})
    next(solver)
    solver.save(path)
    brought = {"validation": VALUES["validation"], "maxiter": 9}
    problem = runs.rosenbrock()["fun"]
    ends = [
        ksdmin.resume(path, problem, options={**brought, **more})
        for more in ({}, {"patience": 4}, {"patience": None})
    ]
    assert [res.status for res in ends] == [Status.VALIDATION, Status.VALIDATION, Status.MAXITER]
    assert [res.nit for res in ends] == [3, 5, 9]

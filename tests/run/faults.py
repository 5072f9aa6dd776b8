"""Runs with a fault at one call of user code: the value, the gradient or the product."""

import contextlib
import math
from functools import cache

import numpy as np

import ksdmin
from ksdmin import Status
from tests.run import runs

KINDS = ("nan", "inf", "-inf", "exception")


class Broken(Exception):
    """What the user's function raises."""


class Faulty:
    """Counts the calls of one verb, and spoils the one numbered `at` (0: none), or all from it."""

    def __init__(self, verb, at, kind, *, forever=False):
        self.verb, self.at, self.kind, self.forever = verb, at, kind, forever
        self.calls, self.values = 0, []

    def wrap(self, verb, function):
        def call(*args):
            out = function(*args)
            if verb == self.verb:
                self.calls += 1
                hit = self.calls >= self.at if self.forever else self.calls == self.at
                out = self._spoiled(out) if self.at and hit else out
            if verb == "value":
                self._note(args, out)
            return out

        return call

    def _note(self, args, out):
        whole = len(args) == 1 or isinstance(args[1], slice)
        if whole and math.isfinite(float(out)):
            self.values.append(float(out))

    def _spoiled(self, out):
        if self.kind == "exception":
            raise Broken
        wrong = float(self.kind)
        if self.verb == "value":
            return wrong
        out = np.array(out)
        out[0] = wrong
        return out


def numpy_run(method, faulty):
    from scipy.optimize import rosen, rosen_der, rosen_hess_prod

    return {
        "fun": faulty.wrap("value", rosen),
        "x0": runs.X0,
        "jac": faulty.wrap("gradient", rosen_der),
        "hessp": faulty.wrap("product", rosen_hess_prod),
        "method": method,
    }


def samples_run(method, faulty):
    problem = runs.samples()["fun"]
    problem = ksdmin.as_problem(
        faulty.wrap("value", problem._fun),
        jac=faulty.wrap("gradient", problem._jac),
        subsets=problem.subsets,
    )
    return {**runs.samples(), "fun": problem, "method": method}


RUNS = {"numpy": numpy_run, "samples": samples_run}


@cache
def calls_of(run, method, verb):
    """How many calls a run without a fault makes."""
    faulty = Faulty(verb, 0, "nan")
    ksdmin.minimize(**RUNS[run](method, faulty))
    return faulty.calls


def check(run, method, verb, at, kind, *, forever=False):
    """A run with a fault: it ends, with a true status, and does not lose the best point."""
    faulty = Faulty(verb, at, kind, forever=forever)
    arguments = RUNS[run](method, faulty)
    options = {"maxiter": 300, **arguments.get("options", {})}
    raised = contextlib.nullcontext()
    if kind == "exception":
        raised = runs.pytest.raises(Broken)
    with np.errstate(all="ignore"), raised as caught:
        res = ksdmin.minimize(**{**arguments, "options": options})
    if kind == "exception":
        res = caught.value.ksdmin_result
        assert res.status == Status.FAILED
    check_result(faulty, res)


def check_result(faulty, res):
    assert res.status in list(Status)
    if res.success:
        assert math.isfinite(res.fun)
        assert float(abs(res.jac).max()) <= 1e-2
    if not faulty.values:
        return
    best = min(faulty.values)
    if res.status == Status.NOT_FINITE and faulty.verb == "gradient":
        # Among points with a gradient the best is returned: another one may have a lower value.
        best = faulty.values[0]
    # After the end, values at two points nearby show whether the gradient is right.
    assert res.fun <= best + 1e-4 * (1 + abs(best)), (res.fun, best, res.message)

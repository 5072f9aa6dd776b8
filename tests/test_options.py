"""Options: what they mean, their defaults, what is refused."""

import math
from dataclasses import fields

import numpy as np
import pytest
import scipy.optimize
from scipy.optimize import OptimizeWarning, rosen, rosen_der, rosen_hess_prod

import ksdmin
from ksdmin import HFOptions, Options
from ksdmin._ksd.rules import Rules
from ksdmin._options import RULES, parse_options


def run(n=2, **kwargs):
    return ksdmin.minimize(rosen, np.full(n, -1.2), jac=rosen_der, hessp=rosen_hess_prod, **kwargs)


# Checks

NUMBERS = ["maxfun", "maxtime", "gtol", "ftol", "xtol", "floor"]
COUNTS = ["krylov_dim", "inner_maxiter", "memory", "maxiter"]


REFUSED = [
    *((name, value) for name in NUMBERS + COUNTS for value in (math.nan, "many", [1])),
    *((name, -1) for name in (*NUMBERS, "memory")),
    *((name, 0) for name in ("krylov_dim", "inner_maxiter", "floor", "patience")),
    *((name, math.inf) for name in ("krylov_dim", "inner_maxiter", "memory", "pairs")),
    *((name, True) for name in ("maxiter", "maxfun", "checkpoint_every")),
    *(("floor", 1.0), ("fmin", "low"), ("average", 1.0), ("history", 1), ("checkpoint", 3)),
    *(("gtol_rel", value) for value in (-1e-3, 1.0, 2, math.nan, "1e-3")),
    *(("checkpoint_every", 0), ("checkpoint_every", math.nan)),
]


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_values_that_are_refused(name, value):
    with pytest.raises((TypeError, ValueError), match=rf"option {name}=.*: expected"):
        Options(**{name: value})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"patience": 3}, "patience: it needs the option validation"),
        ({"validation": 3}, "validation: pass a function of x.* not int$"),
        ({"validation": (rosen, 2)}, r"^option validation: pass .*\)\.value\), not tuple$"),
        ({"checkpoint_every": 0}, "expected iterations as an int from 1 up, or seconds as"),
        ({"maxfun": "10"}, "expected a whole number"),
    ],
)
def test_options_that_make_no_sense(options, told):
    with pytest.raises((TypeError, ValueError), match=told):
        run(options=options)


@pytest.mark.parametrize("maxiter", [-1, 0, 1e3, np.float64(7.0), np.int64(5), math.inf])
def test_maxiter_is_any_whole_number(maxiter):
    """As some of SciPy's callers have it."""
    assert run(options={"maxiter": maxiter}).nit <= max(0, math.ceil(min(maxiter, 1e9)))


@pytest.mark.parametrize("number", [3, 3.0, np.int64(3), np.float32(3)])
def test_numbers_of_any_kind(number):
    assert Options(maxiter=number, krylov_dim=number, memory=number).maxiter == 3
    assert run(options={"maxiter": number, "krylov_dim": number}).nit == 3


# Parsing


def test_unknown_options_warn_as_in_scipy():
    told = r"Unknown solver options: gtoll \(did you mean 'gtol'\?\), spam$"
    with pytest.warns(OptimizeWarning, match=told):
        res = run(options={"gtoll": 1e-9, "maxiter": 3, "spam": 1})
    assert res.nit == 3  # the known ones hold


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("lr", r"lr \(there is no learning rate"),
        ("epochs", "epochs .*maxiter="),
        ("batch_size", "batch_size .*subsets="),
        ("max_iter", "max_iter .*called maxiter"),
    ],
)
def test_options_of_other_libraries_get_a_hint(name, told):
    with pytest.warns(OptimizeWarning, match=f"Unknown solver options: {told}"):
        run(options={name: 1, "maxiter": 1})


@pytest.mark.parametrize(
    ("minimize", "method"),
    [(ksdmin.minimize, "ksd"), (scipy.optimize.minimize, ksdmin.ksd), (ksdmin.Solver, "ksd")],
    ids=["minimize", "plug-in", "solver"],
)
def test_warning_points_at_the_caller(minimize, method):
    with pytest.warns(OptimizeWarning) as told:
        minimize(rosen, [1.0, 1.0], jac=rosen_der, method=method, options={"spam": 1})
    assert told[0].filename == __file__


# As an object


@pytest.mark.parametrize(("method", "kind"), [("ksd", Options), ("hf", HFOptions)])
def test_an_object_is_the_same_as_a_mapping(method, kind):
    given = {"gtol": 1e-8, "damping": 0.5, "maxiter": 200}
    mapped, made = (run(method=method, options=options) for options in (given, kind(**given)))
    assert mapped.x.tobytes() == made.x.tobytes()
    assert mapped.history["value"].tobytes() == made.history["value"].tobytes()


@pytest.mark.parametrize(("method", "kind"), [("ksd", Options), ("hf", HFOptions)])
def test_an_object_takes_tol_unless_it_has_its_own(method, kind):
    assert parse_options(kind(), kind, 1e-3).gtol == 1e-3
    for own in (1e-2, 1e-5):  # also where it is the default's value
        for options in (kind(gtol=own), {"gtol": own}):
            assert parse_options(options, kind, 1e-3).gtol == own
    assert parse_options(kind(maxiter=7), kind, 1e-3).maxiter == 7
    norms = run(method=method, options=kind(), tol=1e-2).history["gradient_norm"]
    assert norms[-1] <= 1e-2 < norms[-2]
    assert norms[-1] > 1e-5


@pytest.mark.parametrize(
    ("method", "wrong", "right"),
    [("ksd", HFOptions(), "Options"), ("hf", Options(), "HFOptions")],
)
def test_the_options_of_the_other_method_are_refused(method, wrong, right):
    with pytest.raises(TypeError, match=rf"expected a mapping or ksdmin\.{right}, not"):
        run(method=method, options=wrong)


# Rules that are switched off


def test_every_rule_has_a_name():
    """The others: what kinds of step remember, what chooses among them, a part of set_sizes."""
    others = {"quasi_newton", "newton", "gauss_newton", "contest", "one_set"}
    assert set(RULES) | others == {field.name for field in fields(Rules)}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"without": ["quasi_newton"]}, r"without='quasi_newton'.*did you mean 'quasi-newton'"),
        ({"without": ["quasi-newton", "forceing"]}, r"without='forceing'.*did you mean 'forcing'"),
        (
            {"without": ["krylov", "newton", "quasi-newton", "gauss-newton"]},
            "no kind of step is left",
        ),
        ({"without": ["krylov", "quasi-newton"]}, "no kind of step is left for this problem"),
        ({"preset": "papper"}, r"option preset='papper'.*did you mean 'paper'"),
    ],
)
def test_names_that_do_not_exist_and_kinds_that_are_not_left(options, told):
    with pytest.raises(ValueError, match=told):
        run(options=options)
    assert Options(without="krylov").without == ("krylov",)


# What they do


@pytest.mark.parametrize("name", ["disp", "progress", "return_all"])
def test_switches(name):
    for value in ("yes", 0.5, np.array([1, 2])):
        with pytest.raises(TypeError, match=rf"option {name}=.*expected True or False"):
            run(options={name: value})
    for value in (False, 0, np.False_, None):
        assert run(options={name: value}).success


@pytest.mark.parametrize("options", [{}, ksdmin.PAPER], ids=["default", "PAPER"])
def test_zero_turns_the_tests_off(options):
    """Where nothing can be gained any more this is said soon, and not called success."""
    res = ksdmin.minimize(
        lambda x: rosen(x) + np.exp(x).sum(),
        np.full(5, -1.2),
        jac=lambda x: rosen_der(x) + np.exp(x),
        hessp=lambda x, p: rosen_hess_prod(x, p) + np.exp(x) * p,
        options=options | {"gtol": 0.0, "ftol": 0.0, "xtol": 0.0},
    )
    assert (res.status, res.success) == (ksdmin.Status.PRECISION_LOSS, False)
    assert np.abs(res.jac).max() < 1e-12
    assert res.nit < 40


def test_krylov_dim_and_inner_maxiter():
    res = run(10, options=ksdmin.PAPER | {"krylov_dim": 3, "inner_maxiter": 2, "maxiter": 5})
    assert res.history["dim"].max() == 4
    assert res.history["inner_iterations"].max() == 2
    res = run(10, options=ksdmin.PAPER | {"krylov_dim": 3, "maxiter": 5})
    assert res.history["inner_iterations"].max() == 3  # krylov_dim where not given


def test_scipys_methods_take_a_mapping():
    with pytest.raises(TypeError, match="SciPy's methods take a mapping, not Options"):
        ksdmin.minimize(lambda x: x @ x, [1.0], method="BFGS", options=ksdmin.Options())

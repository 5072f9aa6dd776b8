"""Whatever a caller passes: a true result, or a refusal that names what was wrong."""

import os
import warnings
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from scipy.optimize import OptimizeWarning

import ksdmin

PACKAGE = str(Path(ksdmin.__file__).parent)
SEEN = {"disp", "progress"}  # they print
FILES = {"checkpoint", "checkpoint_every"}  # tests/run/test_checkpoint.py has them
NAMES = {
    method: [field.name for field in fields(kind) if field.name not in SEEN | FILES]
    for method, kind in {"ksd": ksdmin.Options, "hf": ksdmin.HFOptions}.items()
}
REFUSALS = (TypeError, ValueError)

junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 50),
    st.floats(),
    st.sampled_from(["", "auto", "paper", "2-point", "linear"]),
    st.lists(st.integers(0, 3), max_size=2),
    st.just({}),
    st.builds(object),
    st.builds(lambda: np.float32(0.5)),
    st.builds(lambda: np.array([1, 2])),
)
few = settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def bowl(x, *_):
    return ((x - 1) ** 2).mean() + 0.1 * (x[0] * x[-1] - 2) ** 2


def outcome(call, names):
    """What a call comes to: nothing but a true result, or a refusal that names an argument."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", OptimizeWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            res = call()
        except REFUSALS as error:
            check_refusal(error, names)
            return None
    assert res.status in list(ksdmin.Status)
    if res.success:
        assert np.isfinite(float(res.fun))
    return res


def check_refusal(error, names):
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    at = trace.tb_frame.f_code.co_filename
    assert at.startswith(PACKAGE), f"{type(error).__name__} from {at}: {error}"
    assert any(str(name) in str(error) for name in names), f"names nothing: {error}"


options_of = st.sampled_from(["ksd", "hf"]).flatmap(
    lambda method: st.tuples(
        st.just(method),
        st.dictionaries(st.sampled_from(NAMES[method]), junk, max_size=3),
        st.none() | junk,
    )
)


@few
@given(options_of)
@example(("ksd", {"validation": bowl, "patience": 2}, None))
@example(("ksd", {"without": True}, None))
@example(("hf", {"inner_maxiter": 2.0}, None))
@example(("hf", {"damping": None}, None))
@example(("hf", {"diagonal_power": "low"}, None))
def test_options(case):
    method, options, tol = case
    given = {"method": method, "options": options, "tol": tol}
    names = [*options, "tol", "gtol", "options"]
    outcome(lambda: ksdmin.minimize(bowl, np.ones(3) * 3, **given), names)


starts = st.one_of(
    junk,
    arrays_of.arrays(
        st.sampled_from(["f2", "f4", "f8", "c16", "i4", "u1", "?", ">f8", "O", "U2"]),
        arrays_of.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3),
    ),
)
words = ("x0", "fun", "jac", "objective function", "bounds", "subsets", "hess", "args", "residuals")


@few
@given(starts, st.sampled_from(["ksd", "hf"]))
def test_starts(x0, method):
    outcome(lambda: ksdmin.minimize(bowl, x0, method=method, options={"maxiter": 5}), words)


arguments = st.dictionaries(
    st.sampled_from(["jac", "hess", "hessp", "bounds", "constraints", "subsets", "precond"]),
    junk,
    max_size=2,
)


@few
@given(arguments)
def test_arguments(given):
    call = lambda: ksdmin.minimize(  # noqa: E731
        bowl, np.ones(3) * 3, options={"maxiter": 5}, rng=0, **given
    )
    outcome(call, [*given, *words])


@few
@given(junk)
def test_what_functions_return(returned):
    """At once, or after some calls."""
    options = {"maxiter": 5}
    for first in (0, 5):
        calls = []

        def fun(x, first=first, calls=calls):
            calls.append(x)
            return bowl(x) if len(calls) <= first else returned

        outcome(lambda fun=fun: ksdmin.minimize(fun, np.ones(2), options=options), words)
    jac = lambda x: returned  # noqa: E731
    outcome(lambda: ksdmin.minimize(bowl, np.ones(2), jac=jac, options=options), words)


@few
@given(junk, junk)
def test_resume_and_load(path, problem):
    paths = isinstance(path, (str, os.PathLike))
    for call in (ksdmin.resume, ksdmin.Solver.load):
        with pytest.raises((*REFUSALS, OSError)) as caught:
            call(path if not paths else "no such file", problem)
        assert not isinstance(caught.value, AssertionError)

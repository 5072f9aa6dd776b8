"""Traits: what a problem declares of itself, and what a run makes of it."""

from dataclasses import fields

import numpy as np
import pytest
import torch
from scipy.optimize import rosen, rosen_der, rosen_hess_prod

import ksdmin
from ksdmin import Traits, as_problem
from ksdmin._problem.protocol import OPTIONAL_VERBS

# What the problems of the package say


def torch_problem(*layers, n=400, dtype=torch.float64, **more):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = torch.nn.Sequential(*(layer() for layer in layers)).to(dtype)
    X = torch.randn(n, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = torch.sin(3 * X[:, :1]).expand(n, model(X.to(dtype)).shape[1])
    return ksdmin.from_torch(model, torch.nn.MSELoss(), (X.to(dtype), y.to(dtype)), **more)


def linear(outputs=1, **more):
    return lambda: torch.nn.Linear(4, outputs, **more)


def last():
    return torch.nn.Linear(4, 1)


DEEP = linear(4), torch.nn.Tanh, last


@pytest.mark.parametrize(
    ("layers", "nonlinear"),
    [
        ([linear()], False),
        ([torch.nn.Flatten, linear(3, bias=False)], False),
        ([linear(4), torch.nn.ReLU, last], True),
        ([linear(4), last], True),
        ([linear(), torch.nn.Tanh], True),
    ],
)
def test_what_counts_as_linear(layers, nonlinear):
    assert torch_problem(*layers, n=30).traits.nonlinear is nonlinear


def test_functions_of_autograd_tell_whether_they_are_linear():
    import autograd.numpy as anp

    X, y = np.random.default_rng(0).standard_normal((30, 3)), np.zeros(30)
    straight = ksdmin.from_autograd(lambda w, X: X @ w, "squared-error", (X, y), params=np.ones(3))
    bent = ksdmin.from_autograd(
        lambda w, X: anp.tanh(X @ w), "squared-error", (X, y), params=np.ones(3)
    )
    assert (straight.traits.nonlinear, bent.traits.nonlinear) == (False, True)


@pytest.mark.parametrize(
    ("given", "traits"),
    [
        ({"jac": rosen_der, "hessp": rosen_hess_prod}, {"separate_gradient": True}),
        ({"jac": rosen_der, "precond": np.ones(2)}, {"has_diagonal": True}),
        ({"jac": True}, {"separate_gradient": False}),
        ({}, {"has_projected_gradient": True, "gradient_accuracy": 0.5}),
        ({"jac": rosen_der}, {"gradient_accuracy": 1.0, "product_accuracy": 0.5}),
        ({"jac": rosen_der, "nonlinear": True}, {"nonlinear": True}),
    ],
)
def test_callables_say_what_they_are(given, traits):
    declared = as_problem(rosen, **given).traits
    assert {name: getattr(declared, name) for name in traits} == traits


# What a run makes of them


def test_nonlinear_callables_take_small_sets(losses):
    given = {"jac": losses.jac, "hessp": losses.hessp, "subsets": losses.n}
    for nonlinear, size in ((True, losses.n // 20), (False, losses.n)):
        problem = as_problem(losses.fun, nonlinear=nonlinear, **given)
        res = ksdmin.minimize(problem, losses.x0, rng=0, options={"maxiter": 1})
        assert res.history["size_B"][0] == size


# Wrappers


def passed_on(verb):
    def call(self, *args, **kwargs):
        self.called.add(verb)
        return getattr(self.inner, verb)(*args, **kwargs)

    return call


class Wrapper:
    """Passes on the verbs of a problem, and what it declares."""

    def __init__(self, inner):
        self.inner, self.x0, self.subsets = inner, inner.x0, inner.subsets
        self.traits, self.called = inner.traits, set()

    def in_finer_arithmetic(self):
        self.called.add("in_finer_arithmetic")
        finer = self.inner.in_finer_arithmetic()
        return None if finer is None else Wrapper(finer)


for verb in {"value", "value_and_gradient", "curvature", *OPTIONAL_VERBS.values()}:
    if not hasattr(Wrapper, verb):
        setattr(Wrapper, verb, passed_on(verb))


def same_run(inner, wrapper, **kwargs):
    plain, wrapped = (ksdmin.minimize(problem, rng=0, **kwargs) for problem in (inner, wrapper))
    assert torch.equal(plain.x, wrapped.x)
    for name in ("value", "gradient_norm", "dim", "size_A", "size_B", "nfev", "njev", "nhev"):
        assert plain.history[name].tobytes() == wrapped.history[name].tobytes(), name
    assert plain.preconditioner == wrapped.preconditioner
    return wrapped


KRYLOV = {"without": ["gauss-newton"]}, ["curvature", "value_and_projected_gradient"]


@pytest.mark.parametrize(
    ("precond", "method", "options", "called"),
    [
        ("kronecker", "ksd", *KRYLOV),
        ("diagonal", "ksd", *KRYLOV),
        (None, "ksd", {}, ["jacobian"]),
        ("kronecker", "hf", {}, ["curvature"]),
    ],
    ids=["ksd", "diagonal", "damped steps", "hf"],
)
def test_a_wrapper_that_passes_on_the_traits_runs_as_the_problem_itself(
    precond, method, options, called
):
    inner = torch_problem(*DEEP, precond=precond)
    wrapper = Wrapper(inner)
    same_run(inner, wrapper, method=method, options={"maxiter": 5, **options})
    assert {"value_and_gradient", *called} <= wrapper.called
    assert "factors" in wrapper.called or precond != "kronecker" or "jacobian" in called


def test_a_wrapper_gets_finer_as_the_problem_itself():
    inner = torch_problem(*DEEP, dtype=torch.float32, precision="bfloat16", l2=1e-2)
    wrapper = Wrapper(inner)
    same_run(inner, wrapper, options={"maxiter": 40, "gtol": 1e-7})
    assert "in_finer_arithmetic" in wrapper.called


class Bowl:
    """The verbs, and no traits."""

    def value(self, x, idx):
        return x @ x

    def value_and_gradient(self, x, idx):
        return x @ x, 2 * x

    def curvature(self, x, idx):
        return lambda v: 2 * v


def test_a_wrapper_that_forgets_the_traits_is_refused():
    wrapper = Wrapper(torch_problem(*DEEP))
    del wrapper.traits
    told = (
        "Wrapper has value_and_projected_gradient, matrix, jacobian, factors, in_finer_arithmetic"
    )
    with pytest.raises(TypeError, match=told):
        ksdmin.minimize(wrapper, rng=0)


REFUSED = [
    *(
        (rf"Own has {field.name}, but no traits: declare them as traits = ksdmin", {field.name: 1})
        for field in fields(Traits)
    ),
    *((rf"Own has {verb}, but no traits", {verb: print}) for verb in OPTIONAL_VERBS.values()),
    *(
        (r"Own\.traits: expected a ksdmin\.Traits, not (dict|type|str|float)", {"traits": traits})
        for traits in ({"noise": 1e-3}, Traits, "nonlinear", 1e-3)
    ),
    *(  # a verb that is missing, or is no method
        (
            rf"Own\.traits says {trait}=True, but there is no method {verb}",
            {"traits": Traits(**{trait: True}), **wrong},
        )
        for trait, verb in OPTIONAL_VERBS.items()
        for wrong in ({}, {verb: "no method"})
    ),
]


@pytest.mark.parametrize(("told", "attributes"), REFUSED)
def test_traits_that_do_not_fit_the_verbs_are_refused(told, attributes):
    own = type("Own", (Bowl,), attributes)
    with pytest.raises(TypeError, match=told):
        ksdmin.minimize(own(), np.ones(3))


@pytest.mark.parametrize(
    ("wrong", "error", "told"),
    [
        ({"noise": -1.0}, ValueError, "expected a number"),
        ({"noise": np.nan}, ValueError, "expected a number"),
        ({"diagonal_power": np.inf}, ValueError, "expected a number"),
        ({"nonlinear": "no"}, TypeError, "expected True or False"),
        ({"has_diagonal": 1}, TypeError, "expected True or False"),
    ],
)
def test_a_trait_of_a_wrong_kind_is_refused(wrong, error, told):
    with pytest.raises(error, match=rf"Traits: {next(iter(wrong))}=.* {told}"):
        Traits(**wrong)


class CountsItself(Bowl):
    """A problem whose values are free where the gradient has been asked for."""

    traits = Traits(counts_itself=True)

    def __init__(self):
        self.counts = None

    def counting(self, counts):
        twin = type(self)()
        twin.counts = counts
        return twin

    def value_and_gradient(self, x, idx, *, diagonal=False):
        self.counts.njev += 1
        return super().value_and_gradient(x, idx)


def test_a_problem_may_count_its_own_evaluations():
    own, plain = ksdmin.minimize(CountsItself(), np.ones(3)), ksdmin.minimize(Bowl(), np.ones(3))
    assert (own.nfev, own.njev) == (0, plain.njev)
    assert own.passes < plain.passes


def test_noise_may_be_declared_to_be_zero():
    own = type("Own", (Bowl,), {"traits": Traits(noise=0.0)})
    assert ksdmin.minimize(own(), np.ones(3)).success

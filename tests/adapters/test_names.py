"""Parameters by name: where they are in the flat vector, and bounds on them."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import Bounds

import ksdmin

T = np.linspace(0, 1, 30)


# torch


@pytest.fixture
def net():
    """y = c x + bias in two modules, with parameters beside each other."""

    class Decay(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.Tanh())
            self.head = torch.nn.Linear(2, 1)
            self.c = torch.nn.Parameter(torch.tensor(1.0))
            self.unused_name = torch.nn.Parameter(torch.ones(2), requires_grad=False)

        def forward(self, x):
            return self.head(self.encoder(x)) + self.c * x

    torch.manual_seed(0)
    return Decay().double()


def problem_of(net, **kwargs):
    x = torch.as_tensor(T)[:, None]
    return ksdmin.from_torch(net, torch.nn.MSELoss(), (x, 3 * x**2), **kwargs)


def test_index_of_a_parameter_and_of_a_module(net):
    problem = problem_of(net)
    for name, parameter in net.named_parameters():
        if parameter.requires_grad:
            at = problem.index(name)
            assert isinstance(at, slice)
            assert_array_equal(problem.x0[at], parameter.detach().reshape(-1))
    first, last = problem.index("encoder.0.weight"), problem.index("encoder.0.bias")
    assert problem.index("encoder") == problem.index("encoder.") == slice(first.start, last.stop)


def test_bounds_hold_and_others_are_free(net):
    problem = problem_of(net)
    with pytest.warns(match="x0 lies outside"):
        res = ksdmin.minimize(problem, bounds={"c": (0, 0.5)}, rng=0, options={"maxiter": 30})
    flat = [(None, None)] * len(problem.x0)
    flat[problem.index("c").start] = (0, 0.5)
    with pytest.warns(match="x0 lies outside"):
        expected = ksdmin.minimize(problem, bounds=flat, rng=0, options={"maxiter": 30})
    assert_array_equal(res.x, expected.x)
    assert 0 <= float(res.x[problem.index("c")]) <= 0.5


def limits(problem, bounds):
    """What the run sees: lower and upper."""
    found = problem.named_bounds(bounds)
    assert isinstance(found, Bounds)
    return found.lb, found.ub


def test_the_longest_path_has_the_say(net):
    problem = problem_of(net)
    bounds = {"encoder.0.bias": (None, None), "encoder": (-1, 1), "head.weight": (0, None)}
    low, high = limits(problem, bounds)
    assert (low[problem.index("encoder.0.weight")] == -1).all()
    assert (high[problem.index("encoder.0.weight")] == 1).all()
    assert np.isinf(low[problem.index("encoder.0.bias")]).all()
    assert (low[problem.index("head.weight")] == 0).all()
    assert np.isinf(high[problem.index("head")]).all()


def test_arrays_of_the_shape_of_a_parameter(net):
    problem = problem_of(net)
    low, high = limits(
        problem, {"head.weight": (torch.tensor([[0.0, -1.0]]), None), "c": (np.array(2.0), 3)}
    )
    assert_array_equal(low[problem.index("head.weight")], [0, -1])
    assert_array_equal([low[problem.index("c")], high[problem.index("c")]], [[2], [3]])
    with pytest.raises(ValueError, match=r"shape \(3,\) does not fit the parameter's \(1, 2\)"):
        limits(problem, {"head.weight": (np.zeros(3), None)})
    with pytest.raises(ValueError, match="several parameters are beneath it"):
        limits(problem, {"head": (np.zeros(2), None)})


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"hed.weight": (0, 1)}, r"did you mean 'head\.weight'.*there are c, encoder\.0\.weight"),
        ({"encodr": (0, 1)}, r"did you mean 'encoder'"),
        ({"enc": (0, 1)}, "there is no parameter 'enc'"),
        ({"unused_name": (0, 1)}, "'unused_name' is constant"),
        ({"head": (0, 1), "head.": (0, 1)}, "given twice"),
        ({"head": 1.0}, r"bounds\['head'\]: expected a pair"),
        ({"c": (2, 1)}, r"bounds\['c'\]: the lower bound 2.0 is above"),
        ({"c": ("low", 1)}, "'low' is not a number"),
        ({"c": (np.nan, 1)}, "a limit is NaN"),
        ({"": (0, 1)}, "there is no parameter ''"),
    ],
)
def test_wrong_names_and_limits(net, bounds, message):
    with pytest.raises(ValueError, match=message):
        ksdmin.minimize(problem_of(net), bounds=bounds)


def test_names_are_strings(net):
    with pytest.raises(TypeError, match="expected the name of a parameter, not 3"):
        ksdmin.minimize(problem_of(net), bounds={3: (0, 1)})


def test_only_what_is_trained_has_a_place(net):
    problem = problem_of(net, params=["head", "c"])
    assert_array_equal(problem.x0[problem.index("c")], [net.c.item()])
    with pytest.raises(ValueError, match=r"'encoder' is constant.*params= leaves it out"):
        problem.index("encoder")


def test_parameters_apart_have_an_array(net):
    problem = problem_of(net, params=["head.weight", "c", "head.bias"])
    at = problem.index("head")
    assert isinstance(at, np.ndarray)
    expected = torch.cat([net.head.weight.reshape(-1), net.head.bias]).detach()
    assert_array_equal(problem.x0[at], expected)


def test_blocks_of_residuals_in_torch(net):
    x = torch.as_tensor(T)[:, None]
    problem = ksdmin.from_torch(net, residuals=[(lambda net, x: net(x) - 3 * x**2, x)])
    with pytest.warns(match="x0 lies outside"):
        solver = ksdmin.Solver(problem, bounds={"c": (None, 0.25)}, options={"maxiter": 5}, rng=0)
    for iteration in solver:
        assert float(iteration.x[problem.index("c")]) <= 0.25


def test_plain_functions_in_torch():
    start = {"a": torch.ones(2, dtype=torch.float64), "rest": [torch.ones((), dtype=torch.float64)]}
    problem = ksdmin.from_torch(lambda p: (p["a"] ** 2).sum() + p["rest"][0] ** 2, x0=start)
    res = ksdmin.minimize(problem, bounds={"a": (np.array([0.5, 0.0]), None), "rest.0": (0.1, 2)})
    assert_allclose(res.x, [0.5, 0.0, 0.1], atol=1e-6)
    vector = ksdmin.from_torch(lambda x: x @ x, x0=torch.ones(2))
    with pytest.raises(ValueError, match="have no names: it is a function of one vector"):
        ksdmin.minimize(vector, bounds={"x": (0, 1)})


# Trees


class Pair(NamedTuple):
    scale: object
    shift: object


@pytest.fixture(params=["autograd", "jax"])
def library(request):
    pytest.importorskip(request.param)
    return request.param


def tree_problem(library, **kwargs):
    def model(params, x):
        a, (b,), pair = params["a"], params["rest"], params["pair"]
        return x @ a + b * x + pair.scale * x + pair.shift

    start = {
        "rest": [np.ones(1)],
        "a": np.full((1, 1), 2.0),
        "pair": Pair(np.ones(1), np.array(0.5)),
        "steps": 3,
    }
    x = T[:, None]
    return getattr(ksdmin, f"from_{library}")(model, "squared-error", (x, x), params=start)


def test_paths_in_a_tree(library):
    problem = tree_problem(library)
    x0 = np.asarray(problem.x0)
    assert_allclose(x0[problem.index("a")], [2])
    assert_allclose(x0[problem.index("rest.0")], [1])
    assert_allclose(x0[problem.index("pair.shift")], [0.5])
    assert_allclose(x0[problem.index("pair")], [1, 0.5])
    with pytest.raises(ValueError, match=r"did you mean 'pair\.shift'"):
        problem.index("pair.shft")


def test_bounds_in_a_tree(library):
    problem = tree_problem(library)
    bounds = {"pair": (0.25, None), "pair.shift": (0.125, 2), "a": (np.array([[1.5]]), 3)}
    for method in ("ksd", "L-BFGS-B"):
        res = ksdmin.minimize(problem, bounds=bounds, method=method, rng=0)
        x = np.asarray(res.x)
        assert x[problem.index("pair.shift")] == pytest.approx(0.125, abs=1e-5)
        assert x[problem.index("pair.scale")] >= 0.25 - 1e-6
        assert x[problem.index("a")] >= 1.5 - 1e-6


def test_functions_of_a_vector_have_no_names(library):
    problem = getattr(ksdmin, f"from_{library}")(lambda x: x @ x, x0=np.ones(2))
    with pytest.raises(ValueError, match="have no names"):
        ksdmin.minimize(problem, bounds={"x": (0, 1)})
    for method in ("ksd", "L-BFGS-B"):
        with pytest.raises(TypeError, match="bounds by name are for problems of from_torch"):
            ksdmin.minimize(lambda x: x @ x, np.ones(2), bounds={"x": (0, 1)}, method=method)


def test_covariance_with_bounds_by_name():
    pytest.importorskip("autograd")
    problem = ksdmin.from_autograd(
        lambda p: p["a"] ** 2 + (p["b"] + 1) ** 2 / 2, x0={"a": 1.0, "b": 1.0}
    )
    res = ksdmin.minimize(problem, bounds={"b": (0, None)})
    expected = [[0.5, np.nan], [np.nan, np.nan]]
    assert_allclose(ksdmin.covariance(res), expected)
    assert_allclose(ksdmin.covariance(problem, res.x, bounds={"b": (0, None)}), expected)

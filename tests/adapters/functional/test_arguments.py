"""What from_autograd and from_jax take: penalty, parameters, curvature, and wrong calls."""

import copy
import pickle
import re

import numpy as np
import pytest

from tests.adapters.functional.backends import make, parameters, samples

# The penalty and the parameters


@pytest.mark.parametrize("l2", [{"nothing": 1.0}, [1.0], "much"])
def test_l2_that_is_not_like_the_parameters(backend, l2):
    with pytest.raises(ValueError, match=r"l2: expected a number, or numbers in the order"):
        make(backend, "squared-error", l2=l2)


# Wrong calls


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"loss": "hinge"}, ValueError, r"loss='hinge': expected one of 'squared-error', 'softmax"),
        ({"loss": 3}, TypeError, r"loss=3: expected one of"),
        (
            {"loss": lambda z, y: ((z - y) ** 2).mean()},
            ValueError,
            r"loss returned shape \(\) for \d+ samples: it must return one loss per sample",
        ),
        ({"data": (np.zeros((5, 4)), np.zeros((4, 3)))}, ValueError, r"differ in length: \[4, 5\]"),
        ({"data": (np.zeros((5, 4)), np.zeros(5))}, ValueError, r"outputs have shape \(\d, 3\)"),
        (
            {"data": (np.zeros((5, 4)), -np.ones((5, 3))), "loss": "binary-cross-entropy"},
            ValueError,
            r"the targets go from -1 to -1; expected 0 and 1",
        ),
        (
            {"data": (np.zeros((5, 4)), np.full(5, 0.5)), "loss": "softmax-cross-entropy"},
            ValueError,
            r"targets are numbers from 0.5 to 0.5; expected class labels",
        ),
        (
            {"data": (np.zeros((5, 4)), np.zeros((5, 1))), "loss": "softmax-cross-entropy"},
            ValueError,
            r"Give the targets as y\[:, 0\]",
        ),
        ({"data": np.zeros((5, 4))}, TypeError, r"data: expected \(inputs, targets\), not ndarray"),
        ({"data": ([1.0], [2.0])}, TypeError, r"data: expected arrays with one row per sample"),
        ({"data": (np.zeros((0, 4)), np.zeros((0, 3)))}, ValueError, "there are no samples"),
        (
            {"params": None},
            TypeError,
            r"params= is missing: a model needs params and loss and data",
        ),
        ({"data": None}, TypeError, r"data= is missing"),
        ({"x0": np.zeros(3)}, TypeError, r"x0= goes with a function .* of a model is params="),
        ({"subsets": 3}, TypeError, r"subsets= goes with a function"),
        ({"curvature": "newton"}, ValueError, r"curvature='newton': expected one of 'hessian'"),
        ({"model": 3}, TypeError, r"model: expected a function, not int"),
        (
            {"loss": lambda z, y: z[:, 0], "curvature": "fisher"},
            ValueError,
            r"'fisher' draws labels from the model's likelihood",
        ),
        (
            {"model": lambda p, X: (X @ p["layer0"][0]).sum(axis=0)},
            ValueError,
            r"the model returned shape \(5,\) for \d+ samples",
        ),
        (
            {"model": lambda p, X: (X - X.mean(axis=0)) @ p["layer0"][0][:, :3]},
            ValueError,
            r"the loss of a sample must depend on no other sample",
        ),
        ({"params": {}}, ValueError, r"'x0' is empty"),
        ({"params": [np.zeros(3, complex)]}, TypeError, r"expected float32 or float64"),
    ],
)
def test_wrong_calls(backend, kwargs, error, message):
    right = {
        "model": backend.mlp,
        "loss": "squared-error",
        "data": samples("squared-error"),
        "params": parameters(),
    }
    with pytest.raises(error, match=message):
        backend.make(**{**right, **kwargs})


@pytest.mark.parametrize("shape", [(3,), ()])
def test_a_point_of_the_wrong_shape(backend, shape):
    problem = make(backend, "squared-error")
    x, n = backend.array(np.zeros(shape)), len(problem.x0)
    for verb in (problem.value, problem.value_and_gradient, problem.curvature, problem.fun):
        with pytest.raises(ValueError, match=re.escape(f"x has shape {shape}, expected ({n},)")):
            verb(x)


# Copies


@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickle.dumps])
def test_what_is_compiled_cannot_be_pickled(backend, duplicate):
    with pytest.raises(TypeError, match=r"cannot be pickled or deep-copied.*make it again"):
        duplicate(make(backend, "squared-error"))


def test_a_shallow_copy(backend):
    problem = make(backend, "squared-error")
    twin = copy.copy(problem)
    assert twin.value(twin.x0) == problem.value(problem.x0)

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


X = np.zeros((5, 4))
BINARY, CLASSES = {"loss": "binary-cross-entropy"}, {"loss": "softmax-cross-entropy"}
VALUES = {
    r"loss='hinge': expected one of 'squared-error', 'softmax": {"loss": "hinge"},
    r"shape \(\) for \d+ samples: it must return one loss": {"loss": lambda z, y: (z - y).mean()},
    r"differ in length: \[4, 5\]": {"data": (X, np.zeros((4, 3)))},
    r"outputs have shape \(\d, 3\)": {"data": (X, np.zeros(5))},
    "targets go from -1 to -1; expected 0 and 1": {"data": (X, -np.ones((5, 3)))} | BINARY,
    "numbers from 0.5 to 0.5; expected class": {"data": (X, np.full(5, 0.5))} | CLASSES,
    r"Give the targets as y\[:, 0\]": {"data": (X, np.zeros((5, 1)))} | CLASSES,
    "there are no samples": {"data": (np.zeros((0, 4)), np.zeros((0, 3)))},
    "curvature='newton': expected one of 'hessian'": {"curvature": "newton"},
    "draws labels": {"loss": lambda z, y: z[:, 0], "curvature": "fisher"},
    r"the model returned shape \(5,\)": {"model": lambda p, X: (X @ p["layer0"][0]).sum(axis=0)},
    "must depend on no other sample": {
        "model": lambda p, X: (X - X.mean(axis=0)) @ p["layer0"][0][:, :3]
    },
    "'x0' is empty": {"params": {}},
}
TYPES = {
    "loss=3: expected one of": {"loss": 3},
    r"data: expected \(inputs, targets\), not ndarray": {"data": X},
    "data: expected arrays with one row per sample": {"data": ([1.0], [2.0])},
    "params= is missing: a model needs params and loss and data": {"params": None},
    "data= is missing": {"data": None},
    "x0= goes with a function .* of a model is params=": {"x0": np.zeros(3)},
    "subsets= goes with a function": {"subsets": 3},
    "model: expected a function, not int": {"model": 3},
    "expected float32 or float64": {"params": [np.zeros(3, complex)]},
}


@pytest.mark.parametrize(
    ("error", "message", "kwargs"),
    [(error, *row) for error, table in ((ValueError, VALUES), (TypeError, TYPES))
     for row in table.items()],
)  # fmt: skip
def test_wrong_calls(backend, error, message, kwargs):
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

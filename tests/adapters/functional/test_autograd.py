"""What is particular to from_autograd; the numbers are tested in test_numbers.py."""

import numpy as np
import pytest

import ksdmin
from ksdmin._adapters.flat_problem import picked_rows, seed_for_set
from tests.adapters.functional.backends import parameters, samples

autograd = pytest.importorskip("autograd")
anp = autograd.numpy
CLOSE = {"rtol": 1e-10, "atol": 1e-12}
rng = np.random.default_rng(0)
X, Y = rng.standard_normal((20, 4)), rng.standard_normal((20, 3))
W, V = rng.standard_normal((4, 3)), rng.standard_normal((3, 3))

# name: parameters, model. One pass over all samples gives the squares of the first six only
MODELS = {
    "product": ([W], lambda p, X: anp.tanh(X @ p[0])),
    "dot and shift": ([W, V[0]], lambda p, X: anp.dot(X, p[0]) + p[1]),
    "a shift of shape (1, 3)": ([W, V[:1]], lambda p, X: p[1] + X @ p[0]),
    "a shift for all outputs": ([W, 0.5], lambda p, X: X @ p[0] - p[1]),
    "scales": ([V[0], V[1]], lambda p, X: X[:, :3] * p[0] / p[1]),
    "a parameter without use": ([W, V], lambda p, X: X @ p[0]),
    "tied": ([V], lambda p, X: anp.tanh(X[:, :3] @ p[0]) @ p[0]),
    "transposed": ([W], lambda p, X: anp.dot(p[0].T, X.T).T),
    "sequence": ([V[:2, :2]], lambda p, X: (X.reshape((-1, 2, 2)) @ p[0]).reshape((-1, 4))),
    "product of parameters": ([W, V], lambda p, X: X @ (p[0] @ p[1])),
    "picked": ([W], lambda p, X: X[:, :2] @ p[0][:2]),
    "as many rows as samples": ([V], lambda p, X: X[:, :1] * (np.ones((8, 3)) @ p[0])[0]),
}


@pytest.mark.parametrize(
    ("name", "weights"), [*((name, None) for name in MODELS), ("tied", np.arange(20.0))]
)
def test_the_diagonal_by_one_pass_or_by_one_sample_after_the_other(name, weights):
    params, model = MODELS[name]
    targets = Y if name != "sequence" else rng.standard_normal((20, 4))
    problem = ksdmin.from_autograd(
        model, "squared-error", (X, targets), params=params, chunk_size=8, sample_weight=weights
    )

    def loss(x, i):
        return anp.sum((model(problem.unflatten(x), X[i : i + 1]) - targets[i : i + 1]) ** 2)

    G = np.array([autograd.grad(loss)(problem.x0, i) for i in range(20)])
    if weights is not None:
        G *= weights[:, None] / weights.mean()
    value, g, D = problem.value_and_gradient(problem.x0, diagonal=True)
    np.testing.assert_allclose(value, problem.value(problem.x0), **CLOSE)
    np.testing.assert_allclose(g, G.mean(0), **CLOSE)
    np.testing.assert_allclose(D, (G**2).mean(0), **CLOSE)


@pytest.mark.parametrize(("name", "count"), [("product", 600), ("tied", 256)])
def test_a_diagonal_that_takes_single_gradients_is_estimated_from_some_samples(name, count):
    params, model = MODELS[name]
    inputs, targets = rng.standard_normal((600, 4)), rng.standard_normal((600, 3))
    problem = ksdmin.from_autograd(model, "squared-error", (inputs, targets), params=params)
    chosen = picked_rows(600, count, seed_for_set(0, slice(None))) if count < 600 else range(600)
    _, g, D = problem.value_and_gradient(problem.x0, diagonal=True)
    np.testing.assert_allclose(g, problem.value_and_gradient(problem.x0)[1], **CLOSE)
    parts = [problem.value_and_gradient(problem.x0, np.array([i]))[1] for i in chosen]
    np.testing.assert_allclose(D, np.mean(np.square(parts), axis=0), **CLOSE)


def test_a_model_that_is_not_deterministic():
    source = np.random.default_rng(0)

    def model(params, inputs):
        return inputs @ params + source.standard_normal()

    with pytest.raises(ValueError, match="is not deterministic"):
        ksdmin.from_autograd(model, "squared-error", (X, Y), params=W)


def test_the_users_arrays_are_left_alone():
    params, data = parameters(), samples("squared-error")
    for array in (*data, *(piece for pair in params.values() for piece in pair)):
        array.flags.writeable = False

    def model(p, X):
        return anp.tanh(X @ p["layer0"][0]) @ p["layer1"][0]

    problem = ksdmin.from_autograd(model, "squared-error", data, params=params)
    res = ksdmin.minimize(problem, rng=0, options={"maxiter": 2})
    assert res.fun < problem.value(problem.x0)


def test_saturated_units_are_quiet():
    """Autograd divides by cosh(x)^2, which overflows where the derivative of tanh is zero."""
    problem = ksdmin.from_autograd(
        lambda p, X: anp.tanh(X @ p), "squared-error", (X, Y), params=1e3 * W
    )
    _, g = problem.value_and_gradient(problem.x0)
    assert np.all(np.isfinite(g))
    assert np.all(np.isfinite(problem.curvature(problem.x0)(g)))

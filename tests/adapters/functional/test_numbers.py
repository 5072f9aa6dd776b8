"""Numbers of from_autograd and from_jax; others are compared with torch's in test_parity.py."""

import numpy as np
import pytest

import ksdmin
from ksdmin._problem.counting import Counts
from tests.adapters.functional.backends import (
    CLOSE,
    LOSSES,
    SOME,
    autograd_backend,
    make,
    matrix,
    parameters,
    samples,
)


def test_classes_at_several_positions_and_probabilities(backend):
    """Outputs (n, classes, positions); labels are the probabilities 0 and 1."""
    rng = np.random.default_rng(0)
    X, labels = rng.standard_normal((6, 2)), rng.integers(0, 3, (6, 4))
    params = rng.standard_normal((2, 12))
    one_hot = np.moveaxis(np.eye(3)[labels], -1, 1)

    def model(W, inputs):
        return (inputs @ W).reshape((-1, 3, 4))

    problems = [
        backend.make(model, "softmax-cross-entropy", (X, y), params=params)
        for y in (labels, one_hot)
    ]
    (value, g), (same, too) = (p.value_and_gradient(p.x0) for p in problems)
    z = (X @ params).reshape(6, 3, 4)
    log_p = z - np.log(np.exp(z).sum(1, keepdims=True))
    np.testing.assert_allclose(value, -(one_hot * log_p).sum() / 6, **CLOSE)
    np.testing.assert_allclose(same, value, **CLOSE)
    np.testing.assert_allclose(too, g, **CLOSE)


# Labels drawn from the model


@pytest.mark.parametrize("loss", LOSSES)
def test_the_fisher_matrix_is_the_gauss_newton_matrix_on_average(backend, loss):
    data = tuple(np.repeat(part[:1], 20_000, 0) for part in samples(loss))
    products = []
    for curvature in ("fisher", "gauss-newton"):
        problem = backend.make(backend.mlp, loss, data, params=parameters(), curvature=curvature)
        v = backend.array(np.cos(np.arange(len(problem.x0))))
        products.append(np.asarray(problem.curvature(problem.x0)(v)))
    drawn, expected = products
    assert np.linalg.norm(drawn - expected) <= 0.05 * np.linalg.norm(expected)


def test_a_set_always_draws_the_same_labels(backend):
    loss, idx = "softmax-cross-entropy", backend.array(SOME)
    problem = make(backend, loss, curvature="fisher")
    F = matrix(backend, problem, idx)
    np.testing.assert_array_equal(matrix(backend, problem, idx), F)
    np.testing.assert_allclose(F, F.T, **CLOSE)
    assert np.linalg.eigvalsh(F).min() > -1e-12
    other = make(backend, loss, curvature="fisher", rng=1)
    assert not np.allclose(matrix(backend, other, idx), F)


# Chunks


def test_a_product_without_memory_counts_its_forward_pass(backend):
    kept = {}
    for budget in (None, 1.0):
        problem = make(backend, "squared-error", memory_budget=budget)
        counts = Counts()
        product = problem.counting(counts).curvature(problem.x0)
        product(problem.x0)
        product(problem.x0)
        kept[budget] = counts.nfev, counts.nhev
    assert kept == {None: (0, 2), 1.0: (2, 2)}


# In float32


def logistic(backend, dtype="float64"):
    """Convex: one minimum, whatever the way there."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3))
    y = (rng.random(300) < 1 / (1 + np.exp(-X @ [1.0, -2.0, 0.5]))).astype(dtype)
    params = (np.zeros(3, dtype), np.zeros(1, dtype))
    return backend.make(
        lambda p, inputs: inputs @ p[0] + p[1],
        "binary-cross-entropy",
        (X.astype(dtype), y),
        params=params,
        l2=1e-3,
    )


def test_float32(backend):
    problem, double = logistic(backend, "float32"), logistic(autograd_backend())
    assert problem.traits.noise == 1e-7
    x, v = np.full(4, 0.5), np.arange(4.0)
    single = backend.array(x.astype("float32"))
    for found, expected in zip(
        (*problem.value_and_gradient(single, diagonal=True), problem.hessp(x, v)),
        (*double.value_and_gradient(x, diagonal=True), double.hessp(x, v)),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=2e-6)
    _, g, D = problem.value_and_gradient(problem.x0, diagonal=True)
    product = problem.curvature(problem.x0)(problem.x0)
    assert {str(u.dtype) for u in (problem.x0, g, D, product)} == {"float32"}
    res = ksdmin.minimize(problem, rng=0, options={"maxiter": 1, "krylov_dim": 2})
    assert str(res.x.dtype) == "float32"
    assert res.fun < problem.value(problem.x0)

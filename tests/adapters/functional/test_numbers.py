"""The numbers of from_autograd and from_jax, against dense matrices and from_torch."""

from importlib import import_module

import numpy as np
import pytest

from ksdmin._adapters.functional.losses import as_sample_loss
from ksdmin._problem.counting import Counts
from tests.adapters.functional.backends import (
    CLOSE,
    LOSSES,
    SOME,
    make,
    matrix,
)

# The numbers


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
def test_the_fisher_matrix_of_a_loss_is_its_hessian(backend, loss):
    """In the outputs, over many draws."""
    library = import_module(f"ksdmin._adapters.functional.{backend.name}")
    library = library.Autograd() if backend.name == "autograd" else library.Jax("highest")
    known = as_sample_loss(loss, library.xp, library.logsumexp)
    z = backend.array(np.tile([0.5, -1.0, 0.2], (20_000, 1)))
    w = backend.array(np.ones(len(z)))

    def both(z, draws):
        y = known.draw(z, None, draws)
        r = library.vjp(lambda z: known.losses(z, y), z)[1](w)
        H = [known.hessian(z[:1], y[:1], w[:1])(unit[None])[0] for unit in np.eye(3)]
        return r.T @ r / len(z), H

    F, H = library.compile(both)(z, library.random_generator(0))
    np.testing.assert_allclose(F, np.array(H), atol=0.05)


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

"""Every curvature provider against dense matrices, and against curvlinops."""

import pytest
import torch
from scipy.sparse.linalg import aslinearoperator

from ksdmin._problem.counting import Counts
from tests.adapters.torch.dense import (
    SETS,
    WHOLE,
    assert_close,
    dense,
    directions,
    make,
    multiply,
    point,
)

sets = pytest.mark.parametrize("part", SETS)


def matrix(of, kind):
    return getattr(of, kind.replace("-", "_"))


@pytest.mark.parametrize("name", ["mlp", "normed", "dropped", "tied"])
@pytest.mark.parametrize("kind", ["hessian", "gauss-newton", "empirical-fisher"])
def test_dense(name, kind):
    """Of all kinds of models: tests/zoo."""
    problem = make(name, curvature=kind)
    for part, idx in SETS.items():
        right = dense(name, part)
        V = directions(right.x)
        assert_close(multiply(problem.curvature(right.x, idx), V), matrix(right, kind) @ V)


@pytest.mark.parametrize(
    "made",
    [
        lambda H: H,
        lambda H: lambda v: H @ v,
        lambda H: H.numpy(),
        lambda H: aslinearoperator(H.numpy()),
    ],
    ids=["tensor", "product", "numpy", "LinearOperator"],
)
def test_own_curvature(made):
    right = dense("mlp", "whole")
    problem = make("mlp", curvature=lambda x, idx: made(right.hessian), l2=0.5)
    v = right.gradient
    assert_close(problem.curvature(right.x)(v), right.hessian @ v + 0.5 * v, 1e-14)


@pytest.mark.parametrize("name", ["cnn", "dropped"])
@pytest.mark.parametrize("kind", ["hessian", "gauss-newton", "fisher", "empirical-fisher"])
def test_curvatures_alive_at_once(name, kind):
    problem = make(name, curvature=kind)
    x, y, v = point(problem), point(problem, 0.3), directions(problem.x0, 1)[:, 0]
    places = [(x, WHOLE), (y, WHOLE), (x, SETS["set"])]
    alone = [problem.curvature(*place)(v) for place in places]
    products = [problem.curvature(*place) for place in places]
    problem.value_and_gradient(y, WHOLE, diagonal=True)
    for product, right in zip(products[::-1], alone[::-1], strict=True):
        assert torch.equal(product(v), right)
        assert torch.equal(product(v), right)


@pytest.mark.parametrize("name", ["mlp", "dropped"])
@pytest.mark.parametrize("kind", ["hessian", "gauss-newton", "fisher", "empirical-fisher"])
def test_beyond_the_memory_products_are_computed_again_and_counted(name, kind):
    kept, counts = Counts(), Counts()
    roomy = make(name, curvature=kind, chunk_size=2).counting(kept)
    tight = make(name, curvature=kind, chunk_size=2, memory_budget=1).counting(counts)
    x, V = point(roomy), directions(roomy.x0)
    assert_close(multiply(tight.curvature(x), V), multiply(roomy.curvature(x), V), 1e-13)
    assert (kept.nfev, kept.nhev) == (0, 3)
    assert (counts.nfev, counts.nhev) == (3, 3)

"""Every curvature provider against dense matrices, and against curvlinops."""

import pytest
import torch
from scipy.sparse.linalg import aslinearoperator
from torch import nn

import ksdmin
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
from tests.adapters.torch.zoo import ZOO

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


# Torch's own forward mode, and what curvlinops depends on, use a deprecated part of torch.
beside_curvlinops = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


@pytest.fixture
def curvlinops():
    return pytest.importorskip("curvlinops")


@beside_curvlinops
def test_curvlinops_as_curvature(curvlinops):
    case, l2 = ZOO["mlp"](), 0.1

    def curvature(x, idx):
        nn.utils.vector_to_parameters(x, case.model.parameters())
        X, y = case.data
        parameters = list(case.model.parameters())
        return curvlinops.GGNLinearOperator(case.model, case.loss, parameters, [(X[idx], y[idx])])

    settings = {"l2": l2, "precond": "diagonal"}
    own = ksdmin.from_torch(case.model, case.loss, case.data, curvature=curvature, **settings)
    ours = make("mlp", **settings)
    x, v = point(ours), directions(ours.x0, 1)[:, 0]
    for idx in SETS.values():
        assert_close(own.curvature(x, idx)(v), ours.curvature(x, idx)(v))
    options = {"maxiter": 3, "without": ["gauss-newton"]}
    before = ksdmin.minimize(ours, options=options, rng=0)
    after = ksdmin.minimize(own, options=options, rng=0)
    assert before.fun == pytest.approx(after.fun, rel=1e-6)


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


def test_unknown_curvature():
    with pytest.raises(ValueError, match="expected one of 'hessian'"):
        make("mlp", curvature="gauss")
    with pytest.raises(ValueError, match="does not define"):
        ksdmin.from_torch(nn.Linear(2, 1), nn.L1Loss(), (torch.ones(4, 2), torch.ones(4, 1)),
                          curvature="fisher")  # fmt: skip


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

"""The curvature matrix of a problem is that of its products, whatever computes it."""

import autograd.numpy as anp
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

import ksdmin
from ksdmin._problem.arrays import to_host
from ksdmin._problem.counting import Counts
from tests.adapters.torch.zoo import Forward

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 5))
LABELS = RNG.integers(0, 3, 60)
ODDS = (RNG.random(60) < 0.5).astype(float)
WEIGHTS = RNG.random(60)
SETS = [slice(None), np.array([1, 2, 5, 17, 40])]
PROVIDERS = ("gauss-newton", "hessian", "empirical-fisher")


pytestmark = pytest.mark.usefixtures("x64")


def agrees(problem, idx, matrix=None, tolerance=1e-9):
    """Whether the matrix, that of the problem where none is given, is that of the products."""
    x = problem.x0 + 0.1
    n = x.shape[0]
    sets = problem._space.indices(idx) if isinstance(idx, np.ndarray) else idx
    product = problem.curvature(x, sets)
    columns = [product(problem._space.unit(i)) for i in range(n)]
    expected = np.stack([to_host(column) for column in columns])
    found = to_host(problem.matrix(x, sets) if matrix is None else matrix)
    assert found.shape == (n, n)
    np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max())


def linear(outputs, **given):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Linear(5, outputs, dtype=torch.float64, **given)


def in_torch(model, loss, targets, **given):
    data = torch.tensor(X), torch.tensor(targets)
    return ksdmin.from_torch(model, loss, data, **given)


@pytest.mark.parametrize("curvature", PROVIDERS)
@pytest.mark.parametrize("bias", [True, False])
def test_softmax_regression_in_torch(curvature, bias):
    problem = in_torch(
        linear(3, bias=bias), nn.CrossEntropyLoss(), LABELS, l2=0.1, curvature=curvature
    )
    assert problem.traits.has_matrix
    for idx in SETS:
        agrees(problem, idx)


@pytest.mark.parametrize("l2", [0.0, 0.1, {"weight": 0.1}])
def test_logistic_regression_in_torch_with_weights(l2):
    problem = in_torch(
        linear(1), nn.BCEWithLogitsLoss(), ODDS[:, None], l2=l2, sample_weight=WEIGHTS
    )
    agrees(problem, slice(None))


@pytest.mark.parametrize("kind", ["dropout", "net", "fisher", "callable"])
def test_where_there_is_none(kind):
    given = {"fisher": {"curvature": "fisher"}, "callable": {"curvature": lambda x, idx: torch.eye}}
    before = {"dropout": [nn.Dropout(0.5)], "net": [linear(5), nn.Tanh()]}
    model = nn.Sequential(*before[kind], linear(3)) if kind in before else linear(3)
    problem = in_torch(model, nn.CrossEntropyLoss(), LABELS, **given.get(kind, {}))
    assert not problem.traits.has_matrix
    with pytest.raises(ValueError, match="no curvature matrix"):
        problem.matrix(problem.x0)


def test_a_matrix_counts_the_passes_through_the_model():
    counts = Counts()
    layer = in_torch(linear(3), nn.CrossEntropyLoss(), LABELS).counting(counts)
    layer.matrix(layer.x0)
    assert counts.nhev == 1
    scaled = in_torch(
        Forward(lambda m, x: 2 * m.layer(x), layer=linear(3)), nn.CrossEntropyLoss(), LABELS
    ).counting(counts)
    scaled.matrix(scaled.x0)
    assert counts.nhev == 1 + len(scaled.x0)  # its products


def test_blocks_of_linear_residuals_in_torch():
    layer = linear(2)
    data = torch.tensor(X)
    blocks = [(lambda m, b: m(b)[:, :1] - 1, data, 1.0), (lambda m, b: m(b), data[:20], 3.0)]
    problem = ksdmin.from_torch(layer, residuals=blocks, l2=0.01)
    assert problem.traits.has_matrix
    agrees(problem, slice(None))
    assert ksdmin.minimize(problem).success


@pytest.mark.parametrize("library", ["autograd", "jax"])
def test_blocks_of_linear_residuals_in_autograd_and_jax(library):
    xp = {"autograd": anp, "jax": jnp}[library]
    blocks = [(lambda p, x: xp.dot(x, p) - 1, X), (lambda p, x: xp.dot(x[:, ::-1], p), X[:9], 2.0)]
    problem = getattr(ksdmin, f"from_{library}")(residuals=blocks, params=xp.zeros(5), l2=0.1)
    agrees(problem, slice(None))


@pytest.mark.parametrize("precond", ["fisher", None])
def test_a_run_of_a_linear_layer_takes_the_matrix(precond):
    problem = in_torch(linear(3), nn.CrossEntropyLoss(), LABELS, l2=0.01, precond=precond)
    res = ksdmin.minimize(problem, options={"gtol": 1e-8})
    assert res.success
    assert res.nit <= 12
    assert set(res.history["dim"][1:]) == {1}


@pytest.mark.cuda
def test_softmax_regression_on_a_gpu():
    data = torch.tensor(X, device="cuda"), torch.tensor(LABELS, device="cuda")
    problem = ksdmin.from_torch(linear(3).cuda(), nn.CrossEntropyLoss(), data, l2=0.1)
    x = problem.x0 + 0.1
    product = problem.curvature(x)
    expected = torch.stack([product(unit).clone() for unit in torch.eye(len(x)).to(x)])
    torch.testing.assert_close(problem.matrix(x), expected)
    res = ksdmin.minimize(problem, options={"gtol": 1e-8})
    assert res.success
    assert res.nit <= 12

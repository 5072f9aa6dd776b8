"""Data and targets as people have them: whole numbers, bools, DataFrames, sparse matrices."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import nn

import ksdmin

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 3))
CLASSES = RNG.integers(0, 2, 40)


def linear(outputs=1):
    torch.manual_seed(0)
    return nn.Linear(3, outputs).double()


def value(loss, y, outputs=1, curvature="gauss-newton"):
    """Value, gradient and product of a linear model with these targets."""
    problem = ksdmin.from_torch(
        linear(outputs), loss, (torch.from_numpy(X), y), curvature=curvature, rng=0
    )
    value, g = problem.value_and_gradient(problem.x0)
    return torch.cat([torch.tensor([value]).double(), g, problem.curvature(problem.x0)(g)])


ELEMENTWISE = [
    nn.BCEWithLogitsLoss(),
    nn.functional.binary_cross_entropy_with_logits,
    nn.MSELoss(),
    nn.L1Loss(),
    nn.SmoothL1Loss(),
    nn.HuberLoss(),
    nn.PoissonNLLLoss(),
]


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32])
@pytest.mark.parametrize("loss", ELEMENTWISE)
def test_whole_numbers_and_bools_are_numbers(loss, dtype):
    y = torch.from_numpy(CLASSES)[:, None]
    assert torch.equal(value(loss, y.to(dtype)), value(loss, y.double()))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32])
@pytest.mark.parametrize("curvature", ["gauss-newton", "fisher"])
@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 3.0]).double()])
def test_labels_of_any_whole_numbers(dtype, curvature, weight):
    if weight is not None and curvature == "fisher":
        curvature = "empirical-fisher"  # nothing can be drawn with weights
    y, loss = torch.from_numpy(CLASSES), nn.CrossEntropyLoss(weight=weight)
    expected = value(loss, y, 2, curvature)
    assert torch.equal(value(loss, y.to(dtype), 2, curvature), expected)


def test_bools_that_stand_for_other_numbers():
    y = torch.from_numpy(CLASSES)[:, None].bool()
    with pytest.raises(TypeError, match=r"SoftMarginLoss: the targets are bools.*pass 2 \* y - 1"):
        value(nn.SoftMarginLoss(), y)
    signs = 2 * y.long() - 1
    assert torch.equal(
        value(nn.SoftMarginLoss(), signs), value(nn.SoftMarginLoss(), signs.double())
    )


class Frame:
    """As a DataFrame of pandas or polars: no array, but it has one."""

    def __init__(self, values):
        self._values = values

    def to_numpy(self):
        return self._values


def minimized(problem):
    return np.asarray(ksdmin.minimize(problem, rng=0, options={"maxiter": 3}).x)


def of_torch(X, y):
    return ksdmin.from_torch(linear(2), nn.CrossEntropyLoss(), (X, y), rng=0)


def of(library, X, y):
    pytest.importorskip(library)
    return getattr(ksdmin, f"from_{library}")(
        lambda W, X: X @ W, "softmax-cross-entropy", (X, y), params=np.zeros((3, 2)), rng=0
    )


others = [partial(of, library) for library in ("autograd", "jax")]
ADAPTERS = pytest.mark.parametrize("make", [of_torch, *others])


@ADAPTERS
def test_data_frames(make):
    expected = minimized(make(X, CLASSES))
    assert np.array_equal(minimized(make(Frame(X), Frame(CLASSES))), expected)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abc"), index=range(100, 140))
    found = minimized(make(frame, pandas.Series(CLASSES, index=frame.index)))
    np.testing.assert_allclose(found, expected, rtol=1e-6)  # other strides, other rounding


def test_a_frame_of_words():
    words = Frame(np.array([["a", 1.0]] * 40, dtype=object))
    with pytest.raises(TypeError, match="the Frame has entries that are not numbers"):
        of_torch(words, CLASSES)


@ADAPTERS
def test_columns_that_are_no_numbers_are_named(make):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"length": np.arange(40.0), "kind": ["a", "b"] * 20})
    with pytest.raises(TypeError, match="in the column 'kind': encode them"):
        make(frame, CLASSES)


ADVICE = r"dense.*take sparse data: ksdmin\.minimize\(fun, x0, jac=jac, subsets=N\)"


@ADAPTERS
@pytest.mark.parametrize("form", [scipy.sparse.csr_matrix, scipy.sparse.coo_array])
def test_sparse_matrices_of_scipy(make, form):
    with pytest.raises(TypeError, match=ADVICE):
        make(form(X), CLASSES)


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("form", ["to_sparse_csr", "to_sparse_coo", "to_sparse_csc"])
def test_sparse_tensors(form):
    sparse = getattr(torch.from_numpy(X), form)()
    with pytest.raises(TypeError, match=ADVICE):
        of_torch(sparse, CLASSES)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_load_refuses_what_is_not_finite(wrong):
    net = linear()
    function = ksdmin.from_torch(lambda m: m.weight.square().sum() + m.bias.sum(), x0=net)
    model = ksdmin.from_torch(net, nn.MSELoss(), (torch.from_numpy(X), torch.from_numpy(X[:, :1])))
    before = nn.utils.parameters_to_vector(net.parameters()).clone()
    for problem in (model, function):
        x = problem.x0.clone()
        x[1] = wrong
        for point in (x, x.numpy()):
            with pytest.raises(ValueError, match="1 of the 4 entries of x are NaN"):
                problem.load(point)
        assert torch.isfinite(problem.x0).all()
    assert torch.equal(nn.utils.parameters_to_vector(net.parameters()), before)

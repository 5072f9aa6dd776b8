"""The diagonal of the empirical Fisher matrix: exact, or estimated from some of the samples."""

import logging

import pytest
import torch
from torch import nn

import ksdmin
from ksdmin._adapters.flat_problem import DIAGONAL_SAMPLES
from ksdmin._problem.counting import Counts
from tests.adapters.torch.dense import SETS, Dense, assert_close, dense, make, point
from tests.adapters.torch.zoo import ZOO, Case, Forward, recurrent


@pytest.mark.parametrize(
    ("name", "chunk"),
    [("mlp", 1), ("cnn", 100), *((name, 3) for name in sorted(ZOO))],
)
def test_exact(name, chunk):
    problem = make(name, chunk_size=chunk)
    for part, idx in SETS.items():
        right = dense(name, part, chunk)
        value, g, squares = problem.value_and_gradient(right.x, idx, diagonal=True)
        assert value == pytest.approx(right.value, rel=1e-12)
        assert_close(g, right.gradient)
        assert_close(squares, right.squares)
        assert problem.value(right.x, idx) == pytest.approx(value, rel=1e-14)
        assert_close(problem.value_and_gradient(right.x, idx)[1], g, 1e-13)


def squeeze(m, x):
    return m.single(m.norm(x)).squeeze()


def branch(m, x):
    z = m.head(m.norm(x))
    return z if (z < 1e9).all() else z * 2


@pytest.mark.parametrize("forward", [squeeze, branch])
def test_modules_that_fail_under_vmap(forward, caplog):
    case = ZOO["mlp"]()
    model = Forward(forward, norm=nn.LayerNorm(3), head=nn.Linear(3, 2), single=nn.Linear(3, 1))
    X, y = case.data
    own = Case(model.double(), case.loss, (X, y[:, 0] if forward is squeeze else y))
    with caplog.at_level(logging.INFO, "ksdmin"):
        problem = ksdmin.from_torch(own.model, own.loss, own.data, precond="diagonal")
    (said,) = [one for one in caplog.records if "no diagonal preconditioner" in one.message]
    assert said.levelno == logging.INFO  # unasked it stays off stderr
    assert not problem.traits.has_diagonal
    x = point(problem)
    assert_close(problem.value_and_gradient(x)[1], Dense(own, x).gradient)
    # Beside factors it is looked for where a run asks for it, and then is one that changes nothing
    beside = ksdmin.from_torch(own.model, own.loss, own.data)
    assert beside.traits.has_factors
    _, g, ones = beside.value_and_gradient(x, diagonal=True)
    assert_close(g, Dense(own, x).gradient)
    assert bool((ones == 1).all())
    res = ksdmin.minimize(beside, options={"diagonal_power": 0.5, "maxiter": 3})
    assert res.fun < beside.value(beside.x0)


def with_states(m, x):
    """The user's own first states, which stay."""
    return m.head(m.layer(x, torch.ones(1, len(x), 4, dtype=x.dtype))[0][:, -1])


@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN, nn.LSTM])
@pytest.mark.parametrize(
    ("options", "size"),
    [({}, 4), ({"num_layers": 2}, 4), ({"bidirectional": True}, 8), ({"bias": False}, 4)],
)
def test_recurrent_nets(kind, options, size, caplog, capfd):
    torch.manual_seed(0)
    net = recurrent(kind(3, 4, batch_first=True, **options), size, 1).double()
    if kind is nn.GRU and options == {}:
        net._forward = with_states
    X = torch.randn(6, 5, 3).double()
    data = X, X.sum((1, 2))[:, None]
    problem = ksdmin.from_torch(net, nn.MSELoss(), data)
    squares = problem.value_and_gradient(problem.x0, diagonal=True)[2]
    singles = [
        problem.value_and_gradient(problem.x0, torch.tensor([i]))[1].square() for i in range(6)
    ]
    assert_close(squares, torch.stack(singles).mean(0))
    assert not caplog.records
    assert capfd.readouterr().err == ""


def test_dropout_beside_convolutions_keeps_the_diagonal():
    """Under other masks it is as good an estimate."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(1, 2, 3), nn.Tanh(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(16, 1)
    )
    data = torch.randn(20, 1, 10), torch.randn(20, 1)
    problem = ksdmin.from_torch(model, nn.MSELoss(), data)
    first, second = (problem.value_and_gradient(problem.x0, diagonal=True)[2] for _ in range(2))
    assert torch.equal(first, second)
    assert bool((first >= 0).all())


def repeated(name, times):
    """A case with as many times its samples, no two alike."""
    case = ZOO[name]()
    X, y = (part.repeat(times, *[1] * (part.ndim - 1)) for part in case.data)
    scale = torch.linspace(0.5, 1.5, len(X), dtype=X.dtype).reshape(-1, *[1] * (X.ndim - 1))
    return Case(case.model, case.loss, (X * scale, y))


@pytest.mark.parametrize("every", [1, 2])
def test_what_takes_single_gradients_is_estimated_from_some_samples(every):
    case = repeated("cnn", 100)
    n = len(case.data[1])
    idx = torch.arange(0, n, every)
    problem, counts = ksdmin.from_torch(case.model, case.loss, case.data), Counts()
    chosen = problem._sums.diagonal_samples(idx)
    assert len(chosen) == len(set(chosen.tolist()) & set(idx.tolist())) == DIAGONAL_SAMPLES
    _, g, squares = problem.counting(counts).value_and_gradient(problem.x0, idx, diagonal=True)
    assert_close(g, problem.value_and_gradient(problem.x0, idx)[1], 1e-14)
    assert_close(squares, Dense(case, problem.x0, chosen).squares)
    assert (counts.nfev, counts.njev) == (1, 1)
    assert counts.passes == pytest.approx(2 * DIAGONAL_SAMPLES / n)

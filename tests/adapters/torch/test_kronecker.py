"""Kronecker factors of torch models: what they are of, and the runs that they precondition."""

import logging

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import ksdmin
from ksdmin._problem.arrays import Space
from ksdmin._problem.kronecker import _multiply, multiply
from tests.adapters.torch.zoo import Forward, attentive, recurrent

N = 40


def own_squares(z, y):
    return (z - y).square().sum(1)


def own_entropy(z, y):
    """A loss that defines no likelihood: the factors are those of the labels of the data."""
    return functional.cross_entropy(z, y, reduction="none")


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double()


def convolutional():
    layers = nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.Tanh(), nn.Conv2d(4, 3, 2, dilation=2)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(12, 3)).double()


def data(*shape, classes=3, n=N):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(n, *shape, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(classes, (n,), generator=generator)


def problem_of(net, samples, loss=None, **settings):
    return ksdmin.from_torch(net, loss or nn.CrossEntropyLoss(), samples, **settings)


def times(problem, factors, v):
    return multiply(Space(problem.x0), factors.blocks, factors.entries, v)


# What they are


# What curvlinops depends on uses a deprecated part of torch.
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    ("net", "samples"), [(mlp, data(5)), (convolutional, data(2, 8, 8))], ids=["linear", "conv"]
)
def test_they_are_those_of_curvlinops(net, samples):
    """Of an own loss of one output, whose Hessian in that a slope can have in full."""
    from curvlinops import KFACLinearOperator

    model = nn.Sequential(net(), nn.Linear(3, 1).double())
    samples = samples[0], samples[1].double()[:, None]
    problem = problem_of(model, samples, own_squares, precond="kronecker")
    operator = KFACLinearOperator(
        model,
        nn.MSELoss(),
        list(model.parameters()),
        [samples],
        fisher_type="type-2",
        separate_weight_and_bias=False,
        check_deterministic=False,
    )
    v = torch.linspace(-1, 1, problem.x0.numel(), dtype=torch.float64)
    expected = operator @ v
    found = times(problem, problem.factors(problem.x0), v)
    assert (found - expected).norm() <= 1e-9 * expected.norm()


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_a_multiple_of_an_own_loss_has_the_multiple_of_the_factors(scale):
    v, found = torch.linspace(-1, 1, 57, dtype=torch.float64), []
    for a in (1.0, scale):
        problem = problem_of(
            mlp(), data(5), lambda z, y, a=a: a * own_entropy(z, y), precond="kronecker"
        )
        found.append(times(problem, problem.factors(problem.x0), v) / a)
    assert (found[0] - found[1]).norm() <= 1e-9 * found[0].norm()


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), nn.MSELoss()], ids=str)
def test_labels_are_drawn_where_the_loss_is_a_likelihood(loss):
    """On average over many draws they make the Fisher matrix: here, of one layer and one sample."""
    net, (X, y) = nn.Linear(5, 3).double(), data(5, n=1)
    targets = y if isinstance(loss, nn.CrossEntropyLoss) else net(X).detach()
    repeated = tuple(part.repeat(20_000, *[1] * (part.ndim - 1)) for part in (X, targets))
    problem = problem_of(net, repeated, loss, precond="kronecker", chunk_size=20_000)
    v = torch.linspace(-1, 1, 18, dtype=torch.float64)
    expected = problem.curvature(problem.x0)(v)
    found = times(problem, problem.factors(problem.x0), v)
    assert (found - expected).norm() <= 0.2 * expected.norm()


def twice():
    shared = nn.Linear(5, 5)
    return nn.Sequential(shared, nn.Tanh(), shared, nn.Tanh(), nn.Linear(5, 3)).double()


def own_products():
    parts = {"U": nn.Parameter(torch.randn(5, 4)), "c": nn.Parameter(torch.zeros(4))}
    parts["W"] = nn.Parameter(torch.randn(3, 4))
    return Forward(
        lambda self, x: (self.W @ torch.addmm(self.c, x, self.U).tanh().T).T, **parts
    ).double()


def transposed():
    return nn.Sequential(nn.ConvTranspose1d(2, 3, 3, stride=2, padding=1), nn.Flatten(),
                         nn.Tanh(), nn.Linear(21, 3)).double()  # fmt: skip


def volume():
    return nn.Sequential(nn.Conv3d(1, 2, 2), nn.Tanh(), nn.Flatten(), nn.Linear(16, 3)).double()


KINDS = {
    "a weight used twice": (twice, (5,), 2),
    "products of one's own": (own_products, (5,), 2),
    "an LSTM": (lambda: recurrent(nn.LSTM(5, 4, batch_first=True), 4, 3), (6, 5), 3),
    "a GRU": (lambda: recurrent(nn.GRU(5, 4, batch_first=True), 4, 3), (6, 5), 3),
    "attention": (lambda: attentive(5, 1, 6, 3, dropout=0.0), (6, 5), 5),
    "a transposed convolution": (transposed, (2, 4), 2),
    "a convolution in 3d": (volume, (1, 3, 3, 3), 2),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_factors(kind):
    net, shape, expected = KINDS[kind]
    inputs, targets = data(*shape)
    problem = problem_of(net().float(), (inputs.float(), targets), precond="kronecker")
    blocks = problem.factors(problem.x0).blocks
    assert sum(block.structured for block in blocks) == expected
    covered = sum(np.prod(block.shape) for block in blocks)
    assert covered == problem.x0.numel()


def test_an_embedding_and_tied_weights():
    """Of the rows of an embedding, which also multiplies at the end, there is a diagonal."""
    parts = {"table": nn.Embedding(11, 4), "hidden": nn.Linear(4, 4)}
    net = Forward(
        lambda self, i: self.hidden(self.table(i)).tanh() @ self.table.weight.T, **parts
    ).double()
    tokens = torch.randint(11, (N, 6), generator=torch.Generator().manual_seed(1))
    by_class = lambda z, y: functional.cross_entropy(z.transpose(1, 2), y, reduction="none").mean(1)  # noqa: E731
    problem = problem_of(net, (tokens, tokens), by_class, precond="kronecker")
    table, hidden = problem.factors(problem.x0).blocks
    assert (table.rows, table.columns, table.diagonal_rows) == (11, 4, True)
    assert hidden.shape == (4, 5)
    assert ksdmin.minimize(problem, rng=0, options={"maxiter": 15}).fun < problem.value(problem.x0)


def test_a_side_that_is_too_long(monkeypatch):
    monkeypatch.setattr("ksdmin._adapters.torch.kronecker.LONGEST_SIDE", 5)
    problem = problem_of(mlp(), data(5), precond="kronecker")
    first, second = problem.factors(problem.x0).blocks
    assert (first.diagonal_rows, first.diagonal_columns) == (True, False)
    assert (second.diagonal_rows, second.diagonal_columns) == (False, True)


# When they are taken


def test_by_default_a_net_has_factors_and_the_paper_a_diagonal():
    problem = problem_of(mlp(), data(5))
    found = [
        ksdmin.minimize(problem, rng=0, options={"maxiter": 2, **options}).preconditioner
        for options in ({}, ksdmin.PAPER, {"diagonal_power": 0.5})
    ]
    assert found == ["kronecker", "diagonal", "diagonal"]


def test_a_linear_model_and_a_wide_one_have_none():
    assert not problem_of(nn.Linear(5, 3).double(), data(5)).traits.has_factors
    wide = nn.Sequential(
        nn.Linear(5, 1000), nn.Tanh(), nn.Linear(1000, 1000), nn.Tanh(), nn.Linear(1000, 3)
    )
    assert not problem_of(wide.double(), data(5, n=3)).traits.has_factors


def test_the_diagonal_by_name_and_by_its_old_one():
    runs = [problem_of(mlp(), data(5), precond=name) for name in ("diagonal", "fisher")]
    assert not any(problem.traits.has_factors for problem in runs)
    assert runs[0].traits == runs[1].traits


def test_a_model_without_such_layers_says_so_and_has_a_diagonal(caplog):
    net = Forward(lambda self, x: x[:, :3] * self.a, a=nn.Parameter(torch.ones(3))).double()
    with caplog.at_level(logging.WARNING, "ksdmin"):
        problem = problem_of(net, data(5), precond="kronecker")
    assert "no Kronecker factors" in caplog.text
    assert problem.traits.has_diagonal
    assert not problem.traits.has_factors
    with pytest.raises(ValueError, match="no Kronecker factors"):
        problem.factors(problem.x0)


def net_problem(**settings):
    return problem_of(mlp(), data(5, n=300), l2=1e-3, **settings)


# Runs


def deep_classifier(precond):
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(1500, 30, generator=generator).double() * torch.logspace(0, -1.5, 30)
    W = torch.randn(30, 5, generator=generator).double()
    torch.manual_seed(0)
    layers = nn.Linear(30, 20), nn.Sigmoid(), nn.Linear(20, 20), nn.Sigmoid(), nn.Linear(20, 5)
    net, samples = nn.Sequential(*layers).double(), (X, ((3 * X).tanh() @ W).argmax(1))
    return ksdmin.from_torch(net, nn.CrossEntropyLoss(), samples, l2=1e-4, precond=precond)


def test_it_takes_fewer_passes_than_with_a_diagonal():
    passes = {}
    for precond in ("kronecker", "diagonal"):
        res = ksdmin.minimize(deep_classifier(precond), rng=0, options={"fmin": 0.3})
        assert res.fun <= 0.3
        passes[precond] = res.passes
    assert passes["kronecker"] < 0.8 * passes["diagonal"]


def test_a_saved_run_goes_on_bit_for_bit(tmp_path):
    whole = ksdmin.minimize(net_problem(), rng=0, options={"maxiter": 12})
    solver = ksdmin.Solver(net_problem(), rng=0, options={"maxiter": 12})
    for iteration in solver:
        if iteration.nit == 7:  # within the time that one set of factors serves
            break
    solver.save(tmp_path / "run")
    resumed = ksdmin.Solver.load(tmp_path / "run", net_problem())
    for _ in resumed:
        pass
    np.testing.assert_array_equal(resumed.result().x, whole.x)


def test_bounds_hold():
    problem = net_problem()
    res = ksdmin.minimize(problem, 0.2 * problem.x0, rng=0, bounds=[(-0.1, 0.1)] * 57)
    assert float(res.x.abs().max()) <= 0.1
    assert res.preconditioner == "kronecker"
    assert res.success


def test_activations_that_are_not_finite_leave_a_run_without_factors():
    """Where a sample overflows there are none: the run goes on with what is left."""
    net = Forward(lambda self, x: self.out((1e200 * self.inner(x)).square().clamp(max=1.0)),
                  inner=nn.Linear(5, 4), out=nn.Linear(4, 3)).double()  # fmt: skip
    problem = problem_of(net, data(5), precond="kronecker")
    res = ksdmin.minimize(problem, rng=0, options={"maxiter": 5})
    assert np.isfinite(res.fun)
    assert res.fun <= problem.value(problem.x0)


# On a GPU


def cuda_problem(convolution=True, **settings):
    torch.manual_seed(0)
    layers = (nn.Conv2d(1, 4, 3), nn.ReLU()) if convolution else ()
    hidden = nn.Linear(144 if convolution else 64, 20)
    net = nn.Sequential(*layers, nn.Flatten(), hidden, nn.Tanh(), nn.Linear(20, 3)).cuda()
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(3000, 1, 8, 8, generator=generator).cuda()
    y = (X[:, 0, 2:4, 2:4].sum((1, 2)) > 0).long() + (X[:, 0, 5, 5] > 1).long()
    return ksdmin.from_torch(net, nn.CrossEntropyLoss(), (X, y), l2=1e-4, **settings)


@pytest.mark.cuda
def test_captured_factors_are_the_eager_ones(caplog):
    found = []
    for graphs in (True, False):
        problem = cuda_problem(graphs=graphs, precond="kronecker")
        x = problem.x0 + 0.01
        found += [problem.factors(x, torch.arange(500)).entries for _ in range(3)][-1:]
    assert "no CUDA graphs" not in caplog.text
    assert (found[0] - found[1]).norm() <= 1e-3 * found[1].norm()


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["highest", "high", "bfloat16"])
def test_a_run_on_a_gpu_keeps_its_graphs(caplog, precision):
    problem = cuda_problem(precision=precision)
    res = ksdmin.minimize(problem, rng=0, options={"maxiter": 40, "fmin": 0.05})
    assert res.preconditioner == "kronecker"
    assert res.fun < 0.3
    assert "no CUDA graphs" not in caplog.text


@pytest.mark.cuda
def test_a_recorded_multiplication_is_the_eager_one():
    """With other factors each time, as a run renews them, and with several rows."""
    problem = cuda_problem()
    space = Space(problem.x0)
    for seed in range(4):
        torch.manual_seed(seed)
        damped = problem.factors(problem.x0 + 0.01 * seed).damped(space, 1e-3 * (1 + seed))
        for shape in ((), (3,)):
            v = torch.randn(*shape, *problem.x0.shape, device="cuda")
            eager = _multiply(space, damped.blocks, damped.solves, v)
            assert torch.equal(damped.solve(space, v), eager)
            back = damped.multiply(space, eager)
            assert (back - v).norm() <= 1e-3 * v.norm()
    assert len(space.recorded) == 4


@pytest.mark.cuda
def test_a_saved_run_on_a_gpu_goes_on_bit_for_bit(tmp_path):
    """Without convolutions, whose gradients differ from one time to the next."""
    whole = ksdmin.Solver(cuda_problem(False), rng=0, options={"maxiter": 12})
    for iteration in whole:
        if iteration.nit == 7:
            whole.save(tmp_path / "run")
    resumed = ksdmin.Solver.load(tmp_path / "run", cuda_problem(False))
    for _ in resumed:
        pass
    assert torch.equal(resumed.result().x, whole.result().x)


@pytest.mark.filterwarnings("ignore:The curvature product is not symmetric")
def test_a_space_of_which_only_rounding_is_left_ends():
    """Two samples in B, and a net that the first step has saturated: it came to no end."""
    torch.manual_seed(0)
    problem = problem_of(mlp(), data(5))
    res = ksdmin.minimize(problem, options=ksdmin.PAPER | {"maxiter": 2}, rng=146)
    assert res.nit == 2


def test_an_own_loss_of_one_number_a_sample_has_factors():
    inputs, labels = data(5)
    samples, flat = (inputs, labels.double()), nn.Sequential(mlp(), nn.Linear(3, 1), nn.Flatten(0))
    loss = lambda z, y: ((z - y) ** 2 + 0.01).sqrt()  # noqa: E731
    assert problem_of(flat.double(), samples, loss, precond="kronecker").traits.has_factors


def test_factors_of_an_own_loss_do_not_depend_on_chunks():
    """One that is straight far out, and so has no curvature for some samples."""

    def loss(z, y):
        away = (z - nn.functional.one_hot(y, 3)).abs().sum(1)
        return torch.where(away < 1.5, away**2, 3 * away - 2.25)

    v, found = torch.linspace(-1, 1, 57, dtype=torch.float64), []
    for size in (N, 2):
        problem = problem_of(mlp(), data(5), loss, precond="kronecker", chunk_size=size)
        found.append(times(problem, problem.factors(problem.x0), v))
    assert (found[0] - found[1]).norm() <= 1e-9 * found[0].norm()

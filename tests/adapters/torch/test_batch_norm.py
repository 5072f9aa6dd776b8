"""BatchNorm in train mode: the statistics of batches are part of the objective."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.autograd.functional import jacobian
from torch.nn.functional import mse_loss

import ksdmin
from tests.adapters.torch.dense import from_module
from tests.adapters.torch.zoo import Forward
from tests.zoo.registry import Function

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(60, 3, generator=GENERATOR, dtype=torch.float64)
Y = torch.stack([X[:, 0] * X[:, 1], X[:, 2].sin()], 1)
FEW = {"maxiter": 4}
ADVICE = r"run some batches in train mode under torch\.no_grad\(\), then model\.eval\(\)"


def net(dtype=torch.float64, **options):
    torch.manual_seed(0)
    layers = nn.Linear(3, 5), nn.BatchNorm1d(5, **options), nn.Tanh(), nn.Linear(5, 2)
    return nn.Sequential(*layers).to(dtype)


def problem_of(model, data=(X, Y), **options):
    return ksdmin.from_torch(model, nn.MSELoss(), data, **options)


def changed(model, before):
    """The entries of the state that are others than before."""
    return [name for name, t in model.state_dict().items() if not torch.equal(t, before[name])]


# The objective


@pytest.mark.parametrize("idx", [slice(None), np.arange(7, 30)], ids=["whole", "some"])
@pytest.mark.parametrize("options", [{}, {"track_running_stats": False}], ids=str)
def test_a_set_is_one_batch_in_train_mode(idx, options):
    model = net(**options)
    problem = problem_of(model)
    v = torch.linspace(-1, 1, len(problem.x0), dtype=torch.float64)
    value, g = problem.value_and_gradient(problem.x0, idx)

    outputs = Function(nn.Module.__call__, copy.deepcopy(model), (X[idx],)).objective
    loss = lambda x: mse_loss(outputs(x), Y[idx])  # noqa: E731
    assert value == pytest.approx(loss(problem.x0).item(), rel=1e-12)
    torch.testing.assert_close(g, jacobian(loss, problem.x0))
    J = jacobian(outputs, problem.x0).flatten(0, 1)
    expected = 2 / len(J) * J.T @ (J @ v)
    torch.testing.assert_close(problem.curvature(problem.x0, idx)(v), expected)


def ignored(m, x):
    """What BatchNorm computes counts nothing: the mean loss is that of a linear model."""
    z = m.linear(x)
    return z + 0 * m.norm(z)


@pytest.mark.parametrize("chunk_size", [2, 7, 25, 59, 60])
@pytest.mark.parametrize("weighted", [False, True])
def test_every_sample_counts_once_in_batches(chunk_size, weighted):
    weights = torch.linspace(0.5, 3, 60, dtype=X.dtype) if weighted else None
    model = Forward(ignored, linear=nn.Linear(3, 2), norm=nn.BatchNorm1d(2)).double()
    problem = problem_of(model, chunk_size=chunk_size, sample_weight=weights)
    losses = (model.linear(X) - Y).square().mean(1)
    expected = losses.mean() if weights is None else (losses * weights).sum() / weights.sum()
    assert problem.value(problem.x0) == pytest.approx(expected.item(), rel=1e-12)


# The module


def test_the_module_changes_when_a_point_is_loaded():
    model = net()
    before = copy.deepcopy(model.state_dict())
    problem = problem_of(model)
    res = ksdmin.minimize(problem, rng=0, options=FEW)
    assert changed(model, before) == []
    problem.load(res.x)
    norm = model[1]
    z = model[0](X)
    torch.testing.assert_close(norm.running_mean, z.mean(0))
    torch.testing.assert_close(norm.running_var, z.var(0))
    assert (norm.training, norm.track_running_stats, norm.momentum) == (True, True, 0.1)
    assert norm.num_batches_tracked == 1


def test_a_module_in_eval_mode_keeps_its_statistics():
    model = nn.Sequential(net(), nn.BatchNorm1d(2).double())
    model[1].running_mean.fill_(0.5)
    model[1].eval()
    before = copy.deepcopy(model.state_dict())
    problem = problem_of(model)
    problem.load(problem.x0)
    names = ["running_mean", "running_var", "num_batches_tracked"]
    assert changed(model, before) == [f"0.1.{name}" for name in names]


# Runs


OPTIONS = [
    {"curvature": "hessian"},
    {"curvature": "fisher"},
    {"curvature": "empirical-fisher"},
    {"precond": "kronecker"},
    {"precond": "diagonal"},
    {"chunk_size": 16},
    {"memory_budget": 1500.0},  # the data are streamed
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_runs_go_down_and_are_the_same_again(options, tmp_path):
    def problem():
        return problem_of(net(torch.float32), (X.float(), Y.float()), **options)

    whole = ksdmin.minimize(problem(), rng=0, options={"maxiter": 6})
    assert whole.fun < 0.7 * problem().value(problem().x0)
    solver = ksdmin.Solver(problem(), rng=0, options={"maxiter": 6})
    for _ in range(3):
        next(solver)
    solver.save(tmp_path / "run")
    res = ksdmin.resume(tmp_path / "run", problem())
    assert torch.equal(res.x, whole.x)


def test_samples_of_an_epoch():
    generator = torch.Generator()

    def drawn(epoch):
        x = torch.randn(50, 3, generator=generator.manual_seed(epoch), dtype=torch.float64)
        return x, x[:, :2].sin()

    problem = problem_of(net(), drawn, chunk_size=20)
    res = ksdmin.minimize(problem, rng=0, options={"maxiter": 10})
    assert res.fun < 0.5 * problem.value(problem.x0)
    problem.load(res.x)


def test_copies_are_problems_of_their_own():
    problem = problem_of(net(), chunk_size=20)
    for copied in (copy.deepcopy(problem), pickle.loads(pickle.dumps(problem))):
        assert copied.value(problem.x0) == problem.value(problem.x0)
        copied.load(2 * problem.x0)
    assert problem._model.model[1].num_batches_tracked == 0


# What is refused


def residuals(model):
    return ksdmin.from_torch(model, residuals=[(lambda m, x: m(x), X)])


@pytest.mark.parametrize(
    ("make", "model", "message"),
    [
        (residuals, net(), rf"'1' is in train mode.*residuals=.*{ADVICE}\. Or use GroupNorm"),
        (
            residuals,
            net(track_running_stats=False).eval(),
            rf"BatchNorm1d '1' keeps no running stat.*residuals=.*{ADVICE}\. Or use GroupNorm",
        ),
        (
            problem_of,
            nn.Sequential(nn.Linear(3, 2), nn.SyncBatchNorm(2)),
            rf"SyncBatchNorm '1' is in train mode.*{ADVICE}",
        ),
        (
            lambda model: ksdmin.from_torch(model, data=(X, Y)),
            Forward(lambda m, x, y: mse_loss(m.net(x), y), net=net()),
            r"BatchNorm1d in train mode.*one loss per sample",
        ),
    ],
    ids=["residuals", "no statistics", "several processes", "a mean of the model's own"],
)
def test_refused(make, model, message):
    with pytest.raises(ValueError, match=message):
        make(model)


def test_batches_that_do_not_fit_into_memory():
    """Smaller ones would have other statistics: that is for the user to say."""

    class Large(nn.Module):
        def forward(self, x):
            if len(x) > 30:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory")
            return x

    model = nn.Sequential(net(), Large())
    problem = problem_of(model)
    with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
        problem.value(problem.x0)
    assert "smaller chunk_size=" in caught.value.__notes__[0]
    assert np.isfinite(problem_of(model, chunk_size=30).value(problem.x0))


# Eval mode


def plain():
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


def test_statistics_never_taken_are_warned_of():
    match = rf"'1' is in eval mode, but has taken.*model\.train\(\).*{ADVICE}"
    with pytest.warns(UserWarning, match=match) as caught:
        ksdmin.from_torch(plain().eval(), nn.MSELoss(), (X, Y))
    assert len(caught) == 1
    assert caught[0].filename == __file__


def taken(model):
    """As the advice says."""
    with torch.no_grad():
        model.train()(X.float())
    return model.eval()


def given(model):
    """A checkpoint that does not say how many batches there were."""
    model[1].running_mean.fill_(0.5)
    return model.eval()


@pytest.mark.parametrize("prepare", [taken, given, nn.Module.train])
def test_with_statistics_there_is_nothing_to_say(prepare):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_module(prepare(plain()), (X.float(), Y.float()))

"""Steps of the model whose algebra a CUDA device is told once and then repeats."""

import copy
import gc
import pickle
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose

import ksdmin
from ksdmin._ksd.precond import Preconditioner
from ksdmin._ksd.quasi_newton import Drift, QuasiNewton
from ksdmin._ksd.recorded import RecordedStep, RecordedSteps, is_recordable
from ksdmin._ksd.steps.quasi_newton import solved
from ksdmin._problem.arrays import Space
from ksdmin._problem.values import changed
from tests.nets import tanh_net

torch = pytest.importorskip("torch")
N, CAPACITY = 30, 5
OPTIONS = {"maxiter": 25, "gtol": 0.0, "without": ["gauss-newton"]}


def setting(count=5, device="cpu"):
    """A quadratic's matrix, a path, an array's space, a step, and a model of the first pair."""
    generator = torch.Generator().manual_seed(0)
    root, path = (
        torch.randn(rows, N, generator=generator, dtype=torch.float64) for rows in (N, count)
    )
    H, path = (root @ root.T / N + torch.eye(N)).to(device), path.to(device)
    space = Space(H[0])
    model = QuasiNewton(CAPACITY).with_pair(space, path[0], H @ path[0])
    return H, path, space, RecordedStep(space, CAPACITY), model


def host(tensor):
    return tensor.cpu().numpy()


@pytest.mark.parametrize("with_diagonal", [False, True])
def test_it_measures_what_is_computed_one_by_one(with_diagonal):
    """With few pairs, with as many as there may be, and when the oldest ones go."""
    H, path, space, step, model = setting(10)
    D = torch.rand(N, dtype=torch.float64) + 0.5 if with_diagonal else None
    gradients = path @ H
    for i in range(1, 9):
        x, g, u, at = path[i], gradients[i], path[i - 1], (path[i + 1], gradients[i + 1])
        step.fill(model)
        found = step.measure(x, g, u, D, *at)
        expected = model.with_pair(space, at[0] - x, at[1] - g)
        assert found.slope == pytest.approx(float(at[1] @ u))
        assert found.step_norm == pytest.approx(float((at[0] - x).norm()))
        assert found.gradient_norm == float(at[1].abs().max())
        assert_allclose(found.d, at[0] - x)
        model = model.with_products(space, found.pair())
        assert len(model) == min(i + 1, CAPACITY)
        assert_allclose(model.R_inverse, expected.R_inverse, atol=1e-12)
        assert_allclose(model.pairs.array, expected.pairs.array)
        assert model.scale == pytest.approx(expected.scale)
        direction = expected.preconditioner(space, Preconditioner.diagonal(D)).solve(at[1])
        assert model.solved.g is at[1]
        assert_allclose(model.solved.u, direction, rtol=1e-9)
        assert model.solved.slope == pytest.approx(float(at[1] @ direction))


def test_fewer_pairs_than_before_leave_nothing_of_the_old_ones():
    H, path, space, used, small = setting(6)
    large = small.with_pair(space, path[1], H @ path[1]).with_pair(space, path[2], H @ path[2])
    used.fill(large)
    used.fill(small)
    fresh = RecordedStep(space, CAPACITY)
    fresh.fill(small)
    at = path[4], H @ path[4]
    ours, theirs = (s.measure(path[3], H @ path[3], path[5], None, *at) for s in (used, fresh))
    assert_allclose(ours.pair().columns, theirs.pair().columns)
    assert_allclose(ours.pair().solved.u, theirs.pair().solved.u)


def test_a_pair_without_positive_curvature_teaches_nothing():
    H, path, space, step, model = setting()
    step.fill(model)
    found = step.measure(path[0], -H @ path[0], path[2], None, path[1], -H @ path[1])
    assert np.isfinite([found.slope, found.step_norm, found.gradient_norm]).all()
    assert model.with_products(space, found.pair()) is model


def test_a_line_search_may_measure_several_ends():
    """And come back to an earlier one."""
    H, path, space, step, model = setting()
    x, u = path[1], path[2]
    step.fill(model)
    first, second = (step.measure(x, H @ x, u, None, end, H @ end) for end in path[3:5])
    for found, end in ((first, path[3]), (second, path[4]), (first, path[3])):
        taught = model.with_products(space, found.pair())
        expected = model.with_pair(space, end - x, H @ (end - x))
        assert_allclose(taught.pairs.array, expected.pairs.array)
        assert_allclose(taught.solved.u, expected.preconditioner(space).solve(H @ end))
        step.fill(taught)
        after = step.measure(end, H @ end, u, None, u, H @ u).pair()
        again = taught.with_pair(space, u - end, H @ (u - end))
        assert_allclose(after.solved.u, again.preconditioner(space).solve(H @ u))


def test_what_was_interrupted_is_made_anew():
    """Such as by Ctrl-C, between the pairs that have moved and the matrix of theirs."""
    H, path, space, step, model = setting()
    step.fill(model)
    found = step.measure(path[1], H @ path[1], path[2], None, path[3], H @ path[3])
    taught = model.with_products(space, found.pair())
    with pytest.raises(RuntimeError):
        step.fill(changed(taught, R_inverse=np.zeros((2, 3))))
    for again in (taught, model):
        step.fill(again)
        after = step.measure(path[3], H @ path[3], path[2], None, path[4], H @ path[4]).pair()
        expected = again.with_pair(space, path[4] - path[3], H @ (path[4] - path[3]))
        direction = expected.preconditioner(space).solve(H @ path[4])
        assert_allclose(after.solved.u, direction, rtol=1e-9)


@pytest.mark.parametrize("same", [True, False])
def test_a_direction_is_that_of_its_own_diagonal(same):
    """A diagonal that is computed after the step changes the model's direction."""
    H, path, space, step, model = setting()
    D = torch.rand(N, dtype=torch.float64) + 0.5
    step.fill(model)
    g = H @ path[2]
    found = step.measure(path[1], H @ path[1], path[3], D if same else None, path[2], g)
    model = model.with_products(space, found.pair())
    here = SimpleNamespace(gradient=g, diagonal=D)
    run = SimpleNamespace(space=space, box=None)
    state = SimpleNamespace(here=here, model=model, factors=None)
    u, slope = solved(run, state)
    assert (u is model.solved.u) == same
    assert_allclose(u, model.preconditioner(space, Preconditioner.diagonal(D)).solve(g), rtol=1e-9)
    assert slope == pytest.approx(float(g @ u))


@pytest.mark.cuda
def test_only_small_models_of_pairs_alone_are_recorded():
    for n, drift, recorded in ((N, None, True), (N, Drift(), False), (10_000_000, None, False)):
        s = torch.ones(n, dtype=torch.float64, device="cuda")
        model = QuasiNewton(CAPACITY, drift=drift)
        assert not is_recordable(Space(s), model)  # without a pair
        assert is_recordable(Space(s), model.with_pair(Space(s), s, s)) == recorded


@pytest.mark.cuda
def test_on_a_device_the_graph_repeats_it():
    """The first step is recorded, the others are repeated; the pairs move along."""
    H, path, space, _, model = setting(8, "cuda")
    steps, gradients = RecordedSteps(), path @ H
    for i in range(1, 7):
        at = path[i + 1], gradients[i + 1]
        measure = steps.measure(space, model, path[i], gradients[i], path[0], None)
        found = measure(*at)
        expected = model.with_pair(space, at[0] - path[i], at[1] - gradients[i])
        direction = expected.preconditioner(space).solve(at[1])
        model = model.with_products(space, found.pair())
        assert_allclose(host(found.pair().solved.u), host(direction), rtol=1e-8)
        assert found.slope == pytest.approx(float(at[1] @ path[0]))


def small_net():
    """A model with factors is not recorded: this one has a diagonal."""
    inputs = torch.randn(200, 8, dtype=torch.float64, device="cuda")
    targets = torch.sin(inputs.sum(1, keepdim=True))
    net = tanh_net(8, 10, 1).to("cuda", torch.float64)
    settings = {"l2": 1e-4, "precond": "diagonal"}
    return ksdmin.from_torch(net, torch.nn.MSELoss(), (inputs, targets), **settings)


@pytest.mark.cuda
def test_a_run_with_it_is_a_run_without_it(monkeypatch):
    """But for rounding: the same evaluations, and nearly the same points."""
    problem = small_net()
    ours = ksdmin.minimize(problem, rng=0, options=OPTIONS)
    monkeypatch.setattr("ksdmin._ksd.recorded.is_recordable", lambda *_: False)
    theirs = ksdmin.minimize(problem, rng=0, options=OPTIONS)
    assert (ours.history["dim"][1:] == 1).sum() > 5
    assert (ours.history["nfev"] == theirs.history["nfev"]).all()
    assert_allclose(ours.history["value"], theirs.history["value"], rtol=1e-6)


@pytest.mark.cuda
def test_a_step_made_twice_is_the_same(replayed):
    states = replayed(small_net(), rng=0, options=OPTIONS)
    assert sum(state.model.solved is not None for state in states) > 5


@pytest.mark.cuda
def test_a_run_that_was_saved_goes_on_as_if_it_had_not_been(tmp_path):
    solver = ksdmin.Solver(small_net(), options=OPTIONS, rng=0)
    for _ in range(12):
        next(solver)
    solver.save(tmp_path / "run.npz")
    loaded = ksdmin.Solver.load(tmp_path / "run.npz", small_net())
    ends = [[next(one).x for _ in range(5)][-1] for one in (solver, loaded)]
    assert (ends[0] == ends[1]).all()


def test_a_copy_of_the_arrays_records_its_own():
    steps = RecordedSteps()
    steps._step = RecordedStep(Space(torch.ones(N)), CAPACITY)
    for copied in (copy.copy(steps), copy.deepcopy(steps), pickle.loads(pickle.dumps(steps))):
        assert copied._step is None


@pytest.mark.parametrize("measured", [False, True])
def test_it_is_freed_as_soon_as_it_is_not_used(measured):
    """By a garbage collector that comes while a graph is recorded, it would make that one fail."""
    H, path, _, step, model = setting()
    step.fill(model)
    if measured:
        step.measure(path[1], H @ path[1], path[2], None, path[3], H @ path[3])
    kept = weakref.ref(step)
    gc.disable()
    try:
        del step
        assert kept() is None
    finally:
        gc.enable()

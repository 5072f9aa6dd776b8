"""The torch adapter on a GPU: graphs compute what eager does on the CPU in float64."""

import copy
import logging

import pytest
import torch
from torch import nn

import ksdmin

pytestmark = pytest.mark.cuda

CURVATURES = ("hessian", "gauss-newton", "empirical-fisher")


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(7, 9), nn.Tanh(), nn.Linear(9, 6), nn.Sigmoid(), nn.Linear(6, 3))


def convolutional():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Unflatten(1, (1, 7)), nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(20, 3)
    )


def normalised():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Unflatten(1, (1, 7)), nn.Conv1d(1, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(),
        nn.Linear(20, 3),
    )  # fmt: skip


def data(n):
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(n, 7, generator=generator, dtype=torch.float64)
    return X, torch.randint(0, 3, (n,), generator=generator)


def pair(model, n, dtype=torch.float64, **options):
    """The same problem on the CPU and on the GPU."""
    net, (X, y) = model().to(dtype), data(n)
    loss, X = nn.CrossEntropyLoss(), X.to(dtype)
    options = {"precond": "diagonal"} | options  # labels for factors are drawn on the device
    there = copy.deepcopy(net).cuda()
    return (
        ksdmin.from_torch(net, loss, (X, y), l2=1e-2, **options),
        ksdmin.from_torch(there, loss, (X.cuda(), y.cuda()), l2=1e-2, **options),
    )


def assert_same(cpu, gpu):
    torch.testing.assert_close(gpu.cpu(), cpu, rtol=1e-9, atol=1e-11)


@pytest.fixture(autouse=True)
def _no_fallback(caplog):
    """A model that cannot be captured says so in the log: none of these may."""
    caplog.set_level(logging.WARNING, "ksdmin")
    yield
    assert not caplog.records


@pytest.mark.parametrize("model", [mlp, convolutional])
@pytest.mark.parametrize("curvature", CURVATURES)
def test_graphs_compute_what_eager_does(model, curvature):
    cpu, gpu = pair(model, 50, curvature=curvature)
    generator = torch.Generator().manual_seed(2)
    # Sets of several sizes, so that graphs are replayed with padding and for several chunks.
    for size in (50, 40, 37, 50, 12, 11, 40):
        idx = torch.randperm(50, generator=generator)[:size].sort().values
        x = cpu.x0 + 0.1 * torch.randn(len(cpu.x0), generator=generator, dtype=torch.float64)
        v = torch.randn(len(x), generator=generator, dtype=torch.float64)
        here, there = (
            cpu.value_and_gradient(x, idx, diagonal=True),
            gpu.value_and_gradient(x.cuda(), idx.cuda(), diagonal=True),
        )
        assert there[0] == pytest.approx(here[0], rel=1e-12)
        assert gpu.value(x.cuda(), idx.cuda()) == pytest.approx(here[0], rel=1e-12)
        assert_same(here[1], there[1])
        assert_same(here[2], there[2])
        assert_same(cpu.curvature(x, idx)(v), gpu.curvature(x.cuda(), idx.cuda())(v.cuda()))


def test_a_diagonal_estimated_from_some_samples():
    cpu, gpu = pair(convolutional, 600)
    for idx in (slice(None), torch.arange(500), torch.arange(100, 600)):
        here, there = (p.value_and_gradient(p.x0, idx, diagonal=True) for p in (cpu, gpu))
        for mine, other in zip(here[1:], there[1:], strict=True):
            assert_same(mine, other)


@pytest.mark.parametrize("resident", [True, False])
def test_chunks(resident):
    budget = {} if resident else {"memory_budget": 1.0}
    cpu, gpu = pair(mlp, 103, chunk_size=10, **budget)
    v = torch.ones_like(cpu.x0)
    assert_same(cpu.value_and_gradient(cpu.x0)[1], gpu.value_and_gradient(gpu.x0)[1])
    assert_same(cpu.curvature(cpu.x0)(v), gpu.curvature(gpu.x0)(v.cuda()))


@pytest.mark.parametrize("resident", [True, False])
def test_batch_norm_in_train_mode(resident):
    """Batches are never padded; one of more samples than a graph is compared on is among them."""
    cpu, gpu = pair(normalised, 700, chunk_size=300, **({} if resident else {"memory_budget": 1.0}))
    v = torch.ones_like(cpu.x0)
    for size in (700, 299, 500, 40, 700):
        idx = torch.arange(size) if size < 700 else slice(None)
        there = gpu.value_and_gradient(gpu.x0, idx)
        assert there[0] == pytest.approx(cpu.value(cpu.x0, idx), rel=1e-9)
        assert_same(cpu.value_and_gradient(cpu.x0, idx)[1], there[1])
        assert_same(cpu.curvature(cpu.x0, idx)(v), gpu.curvature(gpu.x0, idx)(v.cuda()))
    runs = [ksdmin.minimize(p, rng=0, options={"maxiter": 3}) for p in (cpu, gpu)]
    assert runs[1].fun == pytest.approx(runs[0].fun, rel=0.1)  # labels of factors are drawn
    for p, run in zip((cpu, gpu), runs, strict=True):
        p.load(run.x)


def test_two_curvatures_at_once():
    cpu, gpu = pair(mlp, 30)
    v, far = torch.ones_like(cpu.x0), cpu.x0 + 0.5
    first, second = gpu.curvature(gpu.x0), gpu.curvature(far.cuda())
    for _ in range(2):
        assert_same(cpu.curvature(cpu.x0)(v), first(v.cuda()))
        assert_same(cpu.curvature(far)(v), second(v.cuda()))


@pytest.mark.parametrize("options", [{}, ksdmin.PAPER], ids=["default", "PAPER"])
def test_minimize_stays_on_the_device(options):
    cpu, gpu = pair(mlp, 200)
    options, sets = options | {"maxiter": 3}, ksdmin.Subsets(200, curvature=10, search=10)
    runs = [ksdmin.minimize(p, subsets=sets, rng=0, options=options) for p in (cpu, gpu)]
    assert runs[1].x.is_cuda
    assert runs[1].jac.is_cuda
    assert runs[1].fun == pytest.approx(runs[0].fun, rel=1e-6)


@pytest.mark.parametrize("precision", ["highest", "high", "bfloat16"])
def test_precision(precision):
    before = torch.backends.cuda.matmul.allow_tf32
    cpu, gpu = pair(mlp, 64, torch.float32, precision=precision)
    value, g = gpu.value_and_gradient(gpu.x0)
    assert value == pytest.approx(cpu.value(cpu.x0), rel=1e-2)
    assert g.dtype == torch.float32
    assert torch.backends.cuda.matmul.allow_tf32 == before


def test_finer_arithmetic_has_finer_values_and_the_same_products():
    _, exact = pair(mlp, 64, torch.float32)
    _, coarse = pair(mlp, 64, torch.float32, precision="high")
    finer, x = coarse.in_finer_arithmetic(), exact.x0
    before = coarse.value_and_gradient(x)[0]
    for verb in ({}, {"diagonal": True}):
        wanted, found = (p.value_and_gradient(x, **verb) for p in (exact, finer))
        assert found[0] == pytest.approx(wanted[0], rel=1e-6)
        for one, other in zip(found[1:], wanted[1:], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
    v = torch.randn_like(x)
    products = [p.curvature(x)(v).clone() for p in (coarse, finer)]
    torch.testing.assert_close(*products, rtol=0, atol=0)
    assert coarse.value_and_gradient(x)[0] == before  # it is left as it was
    assert_ends_in_double(finer)


def assert_ends_in_double(single):
    """The last turn, after float32: values, gradients and products of the same model in float64."""
    double, (_, right) = single.in_finer_arithmetic(), pair(mlp, 64)
    x, v = right.x0, torch.randn_like(right.x0)
    assert double.x0.is_cuda
    assert double.x0.dtype == torch.float64
    assert double.in_finer_arithmetic() is None
    for verb in (lambda p: p.value_and_gradient(x)[1], lambda p: p.curvature(x)(v)):
        # The same but for the data, which float32 has rounded
        torch.testing.assert_close(verb(double), verb(right), rtol=1e-5, atol=1e-7)


def test_bfloat16_in_finer_arithmetic_step_by_step():
    _, exact = pair(mlp, 64, torch.float32, precision="high")
    _, coarse = pair(mlp, 64, torch.float32, precision="bfloat16")
    x, v = exact.x0, torch.randn_like(exact.x0)
    finer = coarse.in_finer_arithmetic()
    assert finer.value_and_gradient(x)[0] == exact.value_and_gradient(x)[0]
    torch.testing.assert_close(finer.curvature(x)(v), exact.curvature(x)(v), rtol=0, atol=0)
    finest = finer.in_finer_arithmetic()
    assert finest.traits.noise == 1e-7
    assert_ends_in_double(finest)


def test_a_product_whose_buffers_are_overwritten_counts_its_forward_pass():
    _, problem = pair(mlp, 60)
    v = torch.randn_like(problem.x0)
    first = problem.curvature(problem.x0)
    before = first(v)
    problem.curvature(2 * problem.x0)
    nfev = problem._counts.nfev
    torch.testing.assert_close(first(v), before)
    assert problem._counts.nfev == nfev + 1


def test_products_do_not_overwrite_each_other():
    _, problem = pair(mlp, 60)
    product = problem.curvature(problem.x0)
    v = torch.randn_like(problem.x0)
    first = product(v)
    copy_of_first = first.clone()
    product(2 * v)
    torch.testing.assert_close(first, copy_of_first, rtol=0, atol=0)


def test_graphs_of_smaller_sets_are_dropped():
    _, problem = pair(mlp, 600)
    for size in (10, 40, 100, 300, 600):
        idx = torch.arange(size, device="cuda")
        problem.value_and_gradient(problem.x0, idx)
        problem.curvature(problem.x0, idx)
    executor = problem._sums._graphs
    assert len([kind for kind, _, _ in executor._captured if kind == "gradient"]) <= 2
    assert len({rows for _, rows, _ in executor._products}) == 1


def test_memory_does_not_grow_with_data_on_the_host():
    peaks = []
    options = {"chunk_size": 1000, "memory_budget": 1.0}
    for n in (5_000, 20_000):  # more chunks than are on the device at once
        X, y = torch.randn(n, 7), torch.randint(0, 3, (n,))
        problem = ksdmin.from_torch(mlp().cuda(), nn.CrossEntropyLoss(), (X, y), **options)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        problem.value_and_gradient(problem.x0, diagonal=True)
        problem.value_and_gradient(problem.x0)
        peaks.append(torch.cuda.max_memory_allocated() - before)
    assert peaks[1] <= 1.01 * peaks[0]


def test_asking_ahead_gives_the_same_run():
    cpu, gpu = pair(mlp, 200)
    options = {**ksdmin.PAPER, "maxiter": 3}
    here, there = (ksdmin.minimize(p, subsets=200, rng=0, options=options) for p in (cpu, gpu))
    assert there.fun == pytest.approx(here.fun, rel=1e-6)
    assert there.nhev == here.nhev


def test_a_deep_copy_captures_graphs_of_its_own():
    _, problem = pair(mlp, 60)
    product = problem.curvature(problem.x0)
    v = torch.randn_like(problem.x0)
    value, right = problem.value(problem.x0), product(v).clone()
    twin = copy.deepcopy(problem)
    assert not twin._sums._graphs._captured
    # Its graphs, and so its chunks, may have other lengths: equal but for rounding
    assert twin.value(twin.x0) == pytest.approx(value, rel=1e-12)
    torch.testing.assert_close(twin.curvature(twin.x0)(v), right, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(product(v), right, rtol=0, atol=0)


def test_a_smaller_set_leaves_the_samples_as_they_are():
    """It runs through the graph of the whole set, with zero weights for what it does not have."""
    cpu, gpu = pair(mlp, 50)
    expected, idx = cpu.value(cpu.x0), torch.arange(40)
    for _ in range(2):
        assert gpu.value(gpu.x0) == pytest.approx(expected, rel=1e-12)
        assert gpu.value(gpu.x0, idx.cuda()) == pytest.approx(cpu.value(cpu.x0, idx), rel=1e-12)


@pytest.mark.parametrize("precision", ["highest", "high", "bfloat16"])
def test_close_to_a_minimum_graphs_are_made_as_elsewhere(precision):
    """There the gradient is mostly rounding, and another shape has another one."""
    net, (X, y) = mlp().cuda(), data(3000)
    X, y, loss = X.float().cuda(), y.cuda(), nn.CrossEntropyLoss()
    there = ksdmin.from_torch(net, loss, (X, y), l2=1e-1, precision=precision)
    res = ksdmin.minimize(there, rng=0, options={"without": ["finer_arithmetic"], "maxiter": 60})
    there.load(res.x)
    for n in (3000, 2999, 1700):
        again = ksdmin.from_torch(net, loss, (X[:n], y[:n]), l2=1e-1, precision=precision)
        again.value_and_gradient(again.x0)
        again.curvature(again.x0)(again.x0)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_a_model_on_a_device_that_is_not_the_current_one(caplog):
    X, y = (part.to("cuda:1") for part in data(60))
    net = mlp().double().to("cuda:1")
    with torch.cuda.device("cuda:0"), caplog.at_level(logging.WARNING, "ksdmin"):
        problem = ksdmin.from_torch(net, nn.CrossEntropyLoss(), (X, y))
        res = ksdmin.minimize(problem, options={"maxiter": 5})
    assert res.x.device == torch.device("cuda:1")
    assert not caplog.records  # graphs were captured

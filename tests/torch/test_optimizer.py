"""ksdmin.torch.KSD: a step is an iteration of the method, whatever kind of closure there is."""

import copy
import gc
import io
import pickle
import warnings
import weakref

import numpy as np
import pytest
from scipy.optimize import OptimizeWarning

import ksdmin

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from ksdmin._libraries import torch as native  # noqa: E402
from ksdmin._problem.arrays import Space  # noqa: E402
from ksdmin.torch import KSD  # noqa: E402
from tests.ksd.snapshots import snapshot  # noqa: E402
from tests.nets import tanh_net  # noqa: E402
from tests.versions import needs_torch  # noqa: E402

GENERATOR = torch.Generator().manual_seed(1)
X = torch.randn(60, 2, generator=GENERATOR, dtype=torch.float64)
Y = torch.sin(2 * X[:, :1]) * X[:, 1:]
KINDS = ("graph", "detached")  # "backward" makes the same run as "detached": a test says so
kinds = pytest.mark.parametrize("kind", KINDS)


def make_net(dtype=torch.float64):
    return tanh_net(2, 6, 1).to(dtype)


def loss_of(net, rows=slice(None)):
    dtype = next(net.parameters()).dtype
    return nn.functional.mse_loss(net(X[rows].to(dtype)), Y[rows].to(dtype))


def closure_of(net, optimizer, kind, rows=slice(None)):
    """The closure of a plain loop, of LBFGS, or of Lightning."""

    def graph():
        return loss_of(net, rows)

    def backward():
        optimizer.zero_grad()
        loss = loss_of(net, rows)
        loss.backward()
        return loss

    return {"graph": graph, "backward": backward, "detached": lambda: backward().detach()}[kind]


def trained(steps, kind="graph", net=None, **options):
    net = make_net() if net is None else net
    optimizer = KSD(net.parameters(), **options)
    closure = closure_of(net, optimizer, kind)
    losses = [float(optimizer.step(closure)) for _ in range(steps)]
    return net, optimizer, losses


def flat(net):
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])


# What a step does


@kinds
def test_ten_steps_go_down(kind):
    net, before = make_net(), loss_of(make_net()).item()
    optimizer = KSD(net.parameters())
    closure = closure_of(net, optimizer, kind)
    returned = [optimizer.step(closure) for _ in range(10)]
    losses = [loss.item() for loss in returned]
    assert losses[0] == before  # the loss before the step
    assert not any(loss.requires_grad for loss in returned)
    losses.append(loss_of(net).item())
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.6 * losses[0]
    assert optimizer.last.iteration == 10
    assert optimizer.last.value == losses[-1]
    assert optimizer.status is None
    assert not optimizer.converged


@pytest.mark.parametrize("options", [{}, dict(ksdmin.PAPER), {"iterations": 4}, {"pairs": 0}])
def test_steps_are_the_iterations_of_minimize(options):
    _, optimizer, losses = trained(5, **options)
    kept = {k: v for k, v in options.items() if k != "iterations"}
    nit = 5 * options.get("iterations", 1)
    problem = ksdmin.from_torch(lambda net: loss_of(net), x0=make_net())
    res = ksdmin.minimize(problem, options={**kept, "maxiter": nit})
    assert losses == res.history["value"][: nit : nit // 5].tolist()
    assert optimizer.last.nhev == res.nhev
    assert optimizer.last.nfev == res.nfev
    # `minimize` may return an earlier point that is lower; the optimizer is where the run is.
    assert snapshot(optimizer.last)[1] == snapshot(res.history[-1])[1]


def test_a_loss_with_a_graph_and_one_without_make_the_same_run():
    first, second = (trained(8, kind) for kind in ("backward", "detached"))
    assert first[2] == second[2]
    assert torch.equal(flat(first[0]), flat(second[0]))


def test_calls_of_the_closure_are_few_and_counted():
    """One at the start of a step, which the products use, too; and those of the search.

    And one in the first step of all, which checks the gradient.
    """
    net, calls = make_net(), []
    optimizer = KSD(net.parameters())

    def closure():
        calls.append(torch.is_grad_enabled())
        return loss_of(net)

    with torch.no_grad():
        for _ in range(6):
            optimizer.step(closure)
    assert all(calls)
    assert optimizer.closure_calls == len(calls) == optimizer.last.nfev + 5 + 1


@pytest.mark.parametrize("kind", ["graph", "backward"])
def test_gradients_are_left_in_order(kind):
    net = make_net()
    optimizer = KSD(net.parameters())
    marks = [torch.full_like(p, 7.0) for p in net.parameters()]
    for p, mark in zip(net.parameters(), marks, strict=True):
        p.grad = mark
    optimizer.step(closure_of(net, optimizer, kind))
    if kind == "graph":
        assert all(p.grad is mark for p, mark in zip(net.parameters(), marks, strict=True))
        return
    expected = torch.autograd.grad(loss_of(net), list(net.parameters()))
    for p, g in zip(net.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, g)


@kinds
@pytest.mark.parametrize("good_calls", [0, 1, 2, 3])
def test_an_exception_leaves_the_last_accepted_parameters(kind, good_calls):
    net = make_net()
    optimizer = KSD(net.parameters(), iterations=3)
    closure = closure_of(net, optimizer, kind)
    optimizer.step(closure)
    points = [flat(net)]

    def fragile():
        if len(points) > good_calls:
            raise RuntimeError("no more data")
        points.append(flat(net))
        return closure()

    before = loss_of(net).item()
    with pytest.raises(RuntimeError, match="no more data"):
        optimizer.step(fragile)
    assert any(torch.equal(flat(net), point) for point in points)
    assert loss_of(net).item() <= before
    assert optimizer.last.value == loss_of(net).item()
    optimizer.step(closure)  # and it goes on
    assert loss_of(net).item() < before


def test_an_exception_in_the_first_call_changes_nothing():
    net = make_net()
    optimizer, before = KSD(net.parameters()), flat(net)
    with pytest.raises(ZeroDivisionError):
        optimizer.step(lambda: 1 / 0)
    assert torch.equal(flat(net), before)
    assert optimizer.last is None
    assert optimizer.closure_calls == 0


# Gradients that are not those of the loss


def slope_of(net, **how):
    """A loss of a derivative of the net, as of a physics-informed one."""
    x = X.to(next(net.parameters()).dtype, copy=True).requires_grad_()
    u = net(x)
    return (torch.autograd.grad(u.sum(), x, **how)[0] - 1).square().mean() + u.square().mean()


def retained(net):
    return slope_of(net, retain_graph=True)


def backward_twice(net):
    loss = loss_of(net)
    loss.backward(retain_graph=True)
    loss.backward()
    return loss


def clipped(net):
    loss = loss_of(net)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
    return loss


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("loss", [retained, backward_twice, clipped])
def test_a_gradient_of_something_else_is_refused_at_once(dtype, loss):
    net = make_net(dtype)
    before, calls = flat(net), []

    def closure():
        calls.append(1)
        return loss(net)

    with pytest.raises(ValueError, match=r"gradient is not that of the loss .* create_graph=True"):
        KSD(net.parameters()).step(closure)
    assert len(calls) == 1 + 2 * 3  # beside the gradient, values on both sides at three distances
    torch.testing.assert_close(flat(net), before, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_derivative_with_its_graph_is_no_such_thing(dtype):
    net = make_net(dtype)
    optimizer = KSD(net.parameters())
    losses = [float(optimizer.step(lambda: slope_of(net, create_graph=True))) for _ in range(5)]
    assert losses[-1] < losses[0]


def test_a_closure_is_not_kept_alive():
    """It may hold a batch; also where it has raised an exception."""
    net = make_net()
    optimizer, calls = KSD(net.parameters()), []

    def closure():
        calls.append(1)
        if len(calls) == 5:
            raise RuntimeError("no more data")
        return loss_of(net)

    alive = weakref.ref(closure)
    optimizer.step(closure)
    with pytest.raises(RuntimeError, match="no more data"):
        optimizer.step(closure)
    del closure
    gc.collect()
    assert alive() is None
    optimizer.step(lambda: loss_of(net))


# When it ends


@kinds
def test_it_says_when_it_has_converged_and_stops(kind):
    torch.manual_seed(0)
    net = nn.Linear(2, 1).double()
    optimizer = KSD(net.parameters(), gtol=1e-7)
    closure = closure_of(net, optimizer, kind)
    for _ in range(30):
        optimizer.step(closure)
        if optimizer.converged:
            break
    assert optimizer.status is ksdmin.Status.CONVERGED
    assert optimizer.last.gradient_norm <= 1e-7
    there, calls = flat(net), optimizer.closure_calls
    optimizer.step(closure)
    assert torch.equal(flat(net), there)
    assert optimizer.closure_calls == calls + 1
    # Another function: there is something to do again.
    optimizer.step(closure_of(net, optimizer, kind, slice(30)))
    assert not torch.equal(flat(net), there)


def test_a_saddle_point_is_left():
    p = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    optimizer = KSD([p])
    for _ in range(20):
        optimizer.step(lambda: ((p**2 - 1) ** 2).sum())
    assert optimizer.converged
    torch.testing.assert_close(p.detach().abs(), torch.ones(3).double(), rtol=0, atol=1e-4)


def test_a_loss_that_is_not_finite_is_said_and_may_recover():
    net = make_net()
    optimizer, there = KSD(net.parameters()), flat(net)
    loss = optimizer.step(lambda: loss_of(net) * float("nan"))
    assert loss.isnan()
    assert optimizer.status is ksdmin.Status.NOT_FINITE
    assert torch.equal(flat(net), there)
    optimizer.step(closure_of(net, optimizer, "graph"))
    assert optimizer.status is None
    assert not torch.equal(flat(net), there)


# Other functions from step to step


@kinds
def test_batches_may_change(kind):
    net = make_net()
    optimizer, before = KSD(net.parameters()), loss_of(net).item()
    order = np.random.default_rng(0)
    for _ in range(15):
        rows = torch.as_tensor(order.choice(len(X), 40, replace=False))
        loss = optimizer.step(closure_of(net, optimizer, kind, rows))
        assert loss_of(net, rows).item() <= loss.item()  # of this batch
    assert loss_of(net).item() < 0.5 * before
    assert optimizer.status is None


@kinds
def test_parameters_changed_from_outside_are_noticed(kind):
    net, optimizer, _ = trained(5, kind)
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(0.5)
    before = loss_of(net).item()
    assert float(optimizer.step(closure_of(net, optimizer, kind))) == before
    assert loss_of(net).item() < before


# state_dict, copies


def through_a_file(state_dict):
    file = io.BytesIO()
    torch.save(state_dict, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def go_on(kind, net, optimizer):
    """Five more steps: losses and end point."""
    closure = closure_of(net, optimizer, kind)
    return [float(optimizer.step(closure)) for _ in range(5)], flat(net)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, {}) for kind in KINDS),
        ("graph", {"iterations": 3, "krylov_dim": 7}),
    ],
)
def test_a_saved_run_goes_on_bit_for_bit(kind, options):
    whole, optimizer, losses = trained(10, kind, **options)
    net, half, _ = trained(5, kind, **options)
    saved = through_a_file({"net": net.state_dict(), "optimizer": half.state_dict()})
    fresh = make_net()
    with torch.no_grad():
        for p in fresh.parameters():
            p.zero_()
    other = KSD(fresh.parameters())
    fresh.load_state_dict(saved["net"])
    other.load_state_dict(saved["optimizer"])
    assert other.last == half.last
    assert other.closure_calls == half.closure_calls
    more, end = go_on(kind, fresh, other)
    assert more == losses[5:]
    assert torch.equal(end, flat(whole))
    assert other.closure_calls == optimizer.closure_calls
    assert snapshot(other.last) == snapshot(optimizer.last)
    assert other.param_groups[0]["gtol"] == optimizer.param_groups[0]["gtol"]


@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
def test_a_copy_goes_on_by_itself(way):
    net, optimizer, _ = trained(5)
    if way == "deepcopy":
        net_too, optimizer_too = copy.deepcopy((net, optimizer))
    else:
        net_too, optimizer_too = pickle.loads(pickle.dumps((net, optimizer)))
    more, end = go_on("graph", net, optimizer)
    assert not torch.equal(flat(net_too), flat(net))
    more_too, end_too = go_on("graph", net_too, optimizer_too)
    assert more_too == more
    assert torch.equal(end_too, end)


def test_state_of_another_optimizer_or_net_is_refused():
    net, optimizer, _ = trained(2)
    adam = torch.optim.Adam(net.parameters())
    with pytest.raises(ValueError, match=r"state_dict comes from another optimizer.*no damping, "):
        optimizer.load_state_dict(adam.state_dict())
    larger = nn.Sequential(nn.Linear(2, 7), nn.Tanh(), nn.Linear(7, 1)).double()
    other = KSD(larger.parameters())
    other.load_state_dict(optimizer.state_dict())
    with pytest.raises(ValueError, match=r"or their sizes, have changed since the last step"):
        other.step(closure_of(larger, other, "graph"))


def test_state_of_another_version_is_refused():
    net, optimizer, _ = trained(2)
    state = copy.deepcopy(optimizer.state_dict())
    state["state"]["ksd"]["state"]["format"] = 0
    optimizer.load_state_dict(state)
    before = flat(net)
    with pytest.raises(ValueError, match=r"saved by another version of ksdmin"):
        optimizer.step(closure_of(net, optimizer, "graph"))
    assert torch.equal(flat(net), before)


# Parameters and groups


def test_named_parameters_are_taken():
    needs_torch(2, 6, "its optimizers take no names")
    net = make_net()
    optimizer = KSD(net.named_parameters())
    assert float(optimizer.step(closure_of(net, optimizer, "graph"))) == trained(1)[2][0]


@kinds
def test_frozen_and_unused_parameters_stay(kind):
    net = make_net()
    net[0].weight.requires_grad_(False)
    unused = nn.Parameter(torch.ones(2, dtype=torch.float64))
    kept, before = net[0].weight.clone(), loss_of(net).item()
    optimizer = KSD([*net.parameters(), unused])
    for _ in range(5):
        optimizer.step(closure_of(net, optimizer, kind))
    assert loss_of(net).item() < before
    assert torch.equal(net[0].weight, kept)
    assert unused.tolist() == [1.0, 1.0]
    net[0].weight.requires_grad_(True)
    with pytest.raises(ValueError, match=r"parameters that require a gradient, or their sizes"):
        optimizer.step(closure_of(net, optimizer, kind))


@pytest.mark.parametrize(
    ("tensors", "error", "told"),
    [
        (nn.Linear(2, 1), TypeError, r"expected net.parameters\(\), not the module itself"),
        ([torch.ones(2)], ValueError, "no parameter requires a gradient"),
        ([torch.ones(2, dtype=torch.complex64)], TypeError, "is complex; expected float32"),
        ([torch.ones(2, dtype=torch.float16)], TypeError, "float16; .* under torch.autocast"),
        ([torch.ones(2, dtype=torch.bfloat16)], TypeError, "bfloat16; expected float32 or"),
        ([torch.eye(2).to_sparse()], TypeError, "layout torch.sparse_coo; expected a dense"),
        ([torch.ones(2), torch.ones(2).double()], ValueError, "share one dtype and device, found "),
        ([torch.ones(2), torch.ones(2, device="meta")], ValueError, "float32 on cpu, .* meta"),
    ],
    ids=["module", "constant", "complex", "half", "bfloat16", "sparse", "dtypes", "devices"],
)
def test_parameters_that_make_no_vector_are_refused(tensors, error, told):
    if told != "no parameter requires a gradient" and isinstance(tensors, list):
        tensors = [t.requires_grad_() for t in tensors]
    with pytest.raises(error, match=told):
        KSD(tensors)


def test_sparse_gradients_are_refused():
    embedding = nn.Embedding(5, 2, sparse=True, dtype=torch.float64)
    optimizer = KSD(embedding.parameters())

    def closure():
        loss = embedding(torch.tensor([1, 2])).square().sum()
        loss.backward()
        return loss

    with pytest.raises(TypeError, match=r"layout torch\.sparse_coo; .*sparse=False"):
        optimizer.step(closure)


def test_groups_have_no_options_of_their_own():
    net = make_net()
    group = {"params": net.parameters(), "lr": 0.1, "gtol": 1e-3}
    with pytest.raises(ValueError, match=r"a group has its own gtol, lr"):
        KSD([group])
    optimizer = KSD([{"params": net[0].parameters()}, {"params": net[2].parameters()}])
    optimizer.param_groups[1]["krylov_dim"] = 3
    with pytest.raises(ValueError, match=r"the groups differ in krylov_dim"):
        optimizer.step(closure_of(net, optimizer, "graph"))


def test_parameters_are_added_before_the_first_step_only():
    net = make_net()
    optimizer = KSD(net[0].parameters())
    optimizer.add_param_group({"params": net[2].parameters()})
    assert float(optimizer.step(closure_of(net, optimizer, "graph"))) == trained(1)[2][0]
    with pytest.raises(ValueError, match=r"cannot be added after the first step"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1).double())]})


# Options


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"lr": 0.1}, TypeError, "takes no lr: there is no learning rate"),
        ({"weight_decay": 0.1}, TypeError, r"takes no weight_decay: add the penalty .* l2 / 2"),
        ({"max_iter": 9}, TypeError, "takes no max_iter: here it is called iterations"),
        ({"epochs": 9}, TypeError, "takes no epochs: your loop decides"),
        ({"tolerance_grad": 0.1}, TypeError, "here it is called gtol"),
        ({"maxiter": 5}, ValueError, r"options without effect on ksdmin.torch.KSD: maxiter\."),
        ({"krylov_dim": 0}, ValueError, "krylov_dim=0: expected a whole number from 1 up"),
        ({"iterations": 0}, ValueError, "iterations=0: expected a whole number from 1 up"),
        ({"preset": "papre"}, ValueError, "did you mean 'paper'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_options_are_refused(options, error, told):
    with pytest.raises(error, match=told):
        KSD(make_net().parameters(), **options)


def test_an_unknown_option_gets_the_warning_of_minimize():
    with pytest.warns(OptimizeWarning, match=r"krylov_dims \(did you mean 'krylov_dim'\?\)") as w:
        KSD(make_net().parameters(), krylov_dims=3)
    assert w[0].filename == __file__


def test_options_may_be_changed_on_the_way():
    net, optimizer, _ = trained(3)
    optimizer.param_groups[0]["iterations"] = 4
    optimizer.step(closure_of(net, optimizer, "graph"))
    assert optimizer.last.iteration == 7
    optimizer.param_groups[0]["krylov_dim"] = -1
    with pytest.raises(ValueError, match="krylov_dim=-1: expected a whole number from 1 up"):
        optimizer.step(closure_of(net, optimizer, "graph"))


def test_schedulers_run_and_are_told_once_that_there_is_no_rate():
    net, optimizer, losses = trained(1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    closure = closure_of(net, optimizer, "graph")
    losses.append(float(optimizer.step(closure)))
    scheduler.step()
    with pytest.warns(OptimizeWarning, match="KSD has no learning rate") as told:
        losses += [float(optimizer.step(closure)) for _ in range(3)]
    assert len(told) == 1
    assert told[0].filename == __file__
    assert losses == trained(5)[2]


@kinds
def test_float32_is_warned_of_once_where_products_are_differences(kind):
    net = make_net(torch.float32)
    optimizer, before = KSD(net.parameters()), loss_of(net).item()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(5):
            optimizer.step(closure_of(net, optimizer, kind))
    assert loss_of(net).item() < 0.9 * before
    assert len(told) == (0 if kind == "graph" else 1)
    for warning in told:
        assert "products are differences of float32 gradients" in str(warning.message)
        assert warning.filename == __file__


def test_a_step_needs_a_closure():
    with pytest.raises(TypeError, match=r"step needs a closure that returns the loss"):
        KSD(make_net().parameters()).step()


# Closures


@pytest.mark.parametrize(
    ("closure", "error", "told"),
    [
        (lambda net: None, TypeError, "the closure returned None"),
        (lambda net: net(X), ValueError, r"one real number, not torch.float64 of shape \(60, 1\)"),
        (lambda net: loss_of(net).detach(), ValueError, r"neither called loss\.backward\(\), nor"),
        (lambda net: loss_of(net).item(), ValueError, r"neither called loss\.backward\(\), nor"),
        (lambda net: loss_of(copy.deepcopy(net)), ValueError, "a graph from the parameters"),
    ],
    ids=["None", "outputs", "detached", "number", "other parameters"],
)
def test_wrong_closures_are_refused(closure, error, told):
    net = make_net()
    optimizer, before = KSD(net.parameters()), flat(net)
    with pytest.raises(error, match=told):
        optimizer.step(lambda: closure(net))
    assert torch.equal(flat(net), before)


def test_a_closure_that_calls_backward_now_and_then_is_refused():
    net, calls = make_net(), []
    optimizer = KSD(net.parameters())

    def closure():
        calls.append(None)
        loss = loss_of(net)
        if len(calls) % 2:
            loss.backward()
        return loss

    with pytest.raises(ValueError, match=r"in one call, and not in another"):
        optimizer.step(closure)


def test_a_loss_without_second_derivative_is_told_what_to_do():
    """Torch's fast attention has a first derivative only."""
    p = nn.Parameter(X[:32].reshape(1, 1, 8, 8).clone())
    optimizer = KSD([p])

    def loss_of_attention():
        return nn.functional.scaled_dot_product_attention(p, p, p).square().sum()

    def closure():
        optimizer.zero_grad()
        loss = loss_of_attention()
        loss.backward()
        return loss

    with pytest.raises(RuntimeError) as caught:
        optimizer.step(loss_of_attention)
    assert "call loss.backward() in the closure" in caught.value.__notes__[0]
    before = optimizer.step(closure)
    assert optimizer.step(closure) < before


def test_a_linear_loss_has_no_curvature():
    p = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    optimizer = KSD([p])
    optimizer.step(lambda: (p * torch.arange(3.0)).sum())
    assert p[2] < 0


# On a GPU


@pytest.fixture
def captured(monkeypatch):
    """The graphs that are captured. Where there is no CUDA device, the host plays one."""
    graphs = []

    class Counted(native.Graph):
        def __init__(self, *args):
            graphs.append(self)
            super().__init__(*args)

    class Played:
        def __init__(self, operations, device, pool):
            graphs.append(self)
            self._operations = operations
            operations()

        def __call__(self):
            self._operations()

    def played_space(self, x, init=Space.__init__):
        init(self, x)
        self.remote = True

    on_device = torch.cuda.is_available()
    monkeypatch.setattr(native, "Graph", Counted if on_device else Played)
    if not on_device:
        monkeypatch.setattr(native, "new_pool", lambda: None)
        monkeypatch.setattr(Space, "__init__", played_space)
        monkeypatch.setattr(native, "cache_bytes", lambda device: 2**20)
    return graphs


def test_graphs_are_captured_in_the_first_steps_only(captured):
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def banana(p):
        return (100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2).sum()

    p, q = (nn.Parameter(torch.full((20,), -1.0, device=device).double()) for _ in range(2))
    optimizer, counts = KSD([p]), []
    for _ in range(60):
        optimizer.step(lambda: banana(p))
        counts.append(len(captured))
    assert counts[-1] == counts[29] > 0
    other = KSD([q])
    other.load_state_dict(through_a_file(optimizer.state_dict()))
    q.data.copy_(p.data)
    for _ in range(5):  # what a process has kept changes no step, but for rounding
        expected = optimizer.step(lambda: banana(p)).item()
        assert other.step(lambda: banana(q)).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.cuda
@pytest.mark.parametrize("kind", ["graph", "backward"])
def test_on_a_gpu(kind):
    def closure_on_gpu(net, optimizer):
        inputs, targets = X.cuda(), Y.cuda()

        def closure():
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(net(inputs), targets)
            if kind == "backward":
                loss.backward()
            return loss

        return closure

    net = make_net().cuda()
    optimizer = KSD(net.parameters())
    closure = closure_on_gpu(net, optimizer)
    losses = [optimizer.step(closure).item() for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
    np.testing.assert_allclose(losses, trained(5, kind)[2], rtol=1e-4)
    saved = through_a_file({"net": net.state_dict(), "optimizer": optimizer.state_dict()})
    fresh = make_net().cuda()
    fresh.load_state_dict(saved["net"])
    other = KSD(fresh.parameters())
    other.load_state_dict(saved["optimizer"])
    again = closure_on_gpu(fresh, other)
    for _ in range(3):
        expected = optimizer.step(closure).item()
        assert other.step(again).item() == pytest.approx(expected, rel=1e-6)
    # And from there to the CPU.
    host = make_net()
    host.load_state_dict(net.state_dict())
    there = KSD(host.parameters())
    there.load_state_dict(optimizer.state_dict())
    before = loss_of(host).item()
    there.step(closure_of(host, there, kind))
    assert loss_of(host).item() < before

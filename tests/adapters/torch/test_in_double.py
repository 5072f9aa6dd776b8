"""A model in float32 ends in float64, where rounding would hide what further steps gain."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import ksdmin
from tests.adapters.torch.dense import directions

RNG = np.random.default_rng(0)
X = torch.as_tensor(RNG.standard_normal((80, 2)), dtype=torch.float32)
Y = torch.sin(X[:, :1]) * X[:, 1:]
CLASSES = (Y[:, 0] > 0).long()
OPTIONS = {"gtol": 1e-9, "maxiter": 60}


def net(outputs=1, dtype=torch.float32, normalised=False):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, outputs)]
        if normalised:
            norm = nn.BatchNorm1d(4)
            norm(torch.rand(9, 4))
            layers.insert(2, norm.eval())
    return nn.Sequential(*layers).to(dtype)


def squares(precision="highest", model=None, **kwargs):
    model = net() if model is None else model
    kwargs = {"precond": "diagonal"} | kwargs
    return ksdmin.from_torch(model, nn.MSELoss(), (X, Y), l2=1e-2, precision=precision, **kwargs)


def run(problem, **kwargs):
    options = OPTIONS | kwargs.pop("options", {})
    return ksdmin.minimize(problem, rng=0, options=options, **kwargs)


# The twin


def fit(dtype):
    model = net(dtype=dtype, normalised=True)
    return ksdmin.from_torch(model, nn.MSELoss(), (X, Y), l2={"0": 0.1})


def weighted(dtype):
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 0.3], dtype=dtype))
    weights = torch.arange(1.0, 81.0)
    return ksdmin.from_torch(net(2, dtype), loss, (X, CLASSES), sample_weight=weights)


def some_parameters(dtype):
    model = net(dtype=dtype)
    return ksdmin.from_torch(model, nn.MSELoss(), (X, Y), params=[model[2].weight, "0"])


def blocks(dtype):
    parts = [(lambda net, batch: net(batch[0]) - batch[1], (X, Y)), (lambda net, x: net(x), X[:3])]
    return ksdmin.from_torch(net(dtype=dtype), residuals=parts, l2=1e-3)


def of_a_module(dtype):
    def fun(net):
        return (net(X.to(net[0].weight.dtype)) - Y).square().mean()

    return ksdmin.from_torch(fun, x0=net(dtype=dtype), l2=1e-2)


def of_tensors(dtype):
    start = {"a": torch.ones(2, dtype=dtype), "b": [torch.full((1,), 0.5, dtype=dtype)]}
    return ksdmin.from_torch(
        lambda t: (t["a"].cosh() * t["b"][0].cosh()).sum(), x0=start, l2={"a": 1.0}
    )


@pytest.mark.parametrize("make", [fit, weighted, some_parameters, blocks, of_a_module, of_tensors])
def test_it_has_the_numbers_of_the_model_in_float64(make):
    single, double = make(torch.float32), make(torch.float64)
    twin = single.in_finer_arithmetic()
    assert twin.x0.dtype == torch.float64
    assert single.x0.dtype == torch.float32
    assert twin.traits == double.traits
    assert twin.in_finer_arithmetic() is double.in_finer_arithmetic() is None
    x, v = double.x0 + 0.1, directions(double.x0, 1)[:, 0]
    for one, other in zip(numbers(twin, x, v), numbers(double, x, v), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)  # weights and x0 were rounded


def numbers(problem, x, v):
    value, *vectors = problem.value_and_gradient(x, diagonal=problem.traits.has_diagonal)
    return [torch.tensor(value), *vectors, problem.curvature(x)(v)]


def test_data_of_every_epoch():
    def data(epoch):
        return X[epoch : epoch + 20], Y[epoch : epoch + 20]

    single = ksdmin.from_torch(net(), nn.MSELoss(), data)
    twin = single.in_finer_arithmetic()
    double = ksdmin.from_torch(net(dtype=torch.float64), nn.MSELoss(), data)
    x = double.x0 + 0.1
    for epoch in (0, 7):
        drawn = single.subsets.draw(epoch, None, None).A  # the set that a run had before it moved
        right = double.value(x, data(epoch))
        assert twin.value(x, drawn) == twin.value(x, data(epoch)) == pytest.approx(right, rel=1e-15)


def test_the_module_stays_as_it_is():
    model = net(normalised=True)
    before = copy.deepcopy(model.state_dict())
    twin = squares(model=model).in_finer_arithmetic()
    twin.value_and_gradient(twin.x0 + 1)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
        assert tensor.dtype == before[name].dtype


def test_where_there_is_none():
    assert squares("float32").in_finer_arithmetic() is None
    assert blocks(torch.float64).in_finer_arithmetic() is None
    own = {"curvature": lambda x, idx: lambda v: v}, {"precond": lambda x, idx: x * 0 + 1}
    for verbs in own:  # which know float32
        assert squares(**verbs).in_finer_arithmetic() is None


# Runs


def test_off_and_on():
    off, on = run(squares("float32")), run(squares())
    assert off.status == ksdmin.Status.PRECISION_LOSS
    assert off.x.dtype == off.jac.dtype == torch.float32
    assert on.success, on.message
    assert on.x.dtype == on.jac.dtype == torch.float64
    double = squares().in_finer_arithmetic()
    assert on.fun == double.value(on.x)
    assert double.value_and_gradient(on.x)[1].abs().max() <= 1e-9


@pytest.mark.cuda
@pytest.mark.parametrize("word", ["highest", "high"])
def test_on_a_gpu(word):
    res = run(squares(word, model=net().cuda()), options={"gtol": 1e-8, "maxiter": 100})
    assert res.x.dtype == torch.float64
    assert res.x.is_cuda
    assert res.success, res.message


def test_without_the_rule_it_does_not_turn():
    res = run(squares(), options={"without": ["finer_arithmetic"]})
    assert res.x.dtype == torch.float32
    assert res.status == ksdmin.Status.PRECISION_LOSS


def test_what_the_run_shows_of_its_iterates():
    seen = []
    options = {"average": 0.9, "validation": lambda x: float(x @ x), "return_all": True}
    res = run(squares(), options=options, callback=lambda x: seen.append(x.dtype))
    turn = seen.index(torch.float64)
    assert set(seen[:turn]) == {torch.float32}
    assert set(seen[turn:]) == {torch.float64}
    assert [x.dtype for x in res.allvecs] == [torch.float32, *seen]
    assert res.average.x.dtype == res.validation.x.dtype == torch.float64


def test_bounds():
    problem = squares()
    res = run(problem, bounds=[(-1.0, 0.7)] * len(problem.x0))
    assert res.x.dtype == torch.float64
    assert res.success, res.message
    assert float(res.x.max()) == np.float32(0.7)  # the bound as the run began with it
    assert float(res.x.min()) >= -1


def test_load_rounds_to_what_the_module_has():
    model = net()
    problem = squares(model=model)
    res = run(problem)
    problem.load(res.x)
    assert torch.equal(nn.utils.parameters_to_vector(model.parameters()), res.x.float())
    assert torch.equal(problem.x0, res.x.float())
    model.double()
    problem.load(res.x)
    assert torch.equal(nn.utils.parameters_to_vector(model.parameters()), res.x)
    problem.load(res.x.numpy())
    assert torch.equal(nn.utils.parameters_to_vector(model.parameters()), res.x)


# Models that cannot


class Captures(nn.Module):
    """Multiplies by a float32 matrix that is neither a parameter nor a buffer."""

    def __init__(self):
        super().__init__()
        self.inner, self.held = net(), [torch.eye(1)]

    def forward(self, x):
        return self.inner(x) @ self.held[0]


class Rounds(Captures):
    """Returns float32 whatever it is given."""

    def forward(self, x):
        return self.inner(x).float()


@pytest.mark.parametrize(("model", "why"), [(Captures, "dtype"), (Rounds, "returns torch.float32")])
def test_a_model_that_fails_in_float64_stays_in_float32(model, why):
    torch.manual_seed(0)
    problem = squares(model=model())
    with pytest.warns(RuntimeWarning, match=f"fails .*{why}.*precision='float32'"):
        res = run(problem)
    assert res.x.dtype == torch.float32
    assert res.status == ksdmin.Status.PRECISION_LOSS
    run(problem)  # said once


class Large(Captures):
    """Does not fit into memory in float64."""

    def forward(self, x):
        if x.dtype == torch.float64:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return self.inner(x)


def test_a_model_that_does_not_fit_in_float64_stays_in_float32():
    torch.manual_seed(0)
    with pytest.warns(RuntimeWarning, match=r"out of memory\), so.*twice the memory of the model"):
        res = run(squares(model=Large()))
    assert res.x.dtype == torch.float32
    assert res.status == ksdmin.Status.PRECISION_LOSS


def test_a_run_that_turned_is_not_resumed_where_it_may_not(tmp_path):
    path = tmp_path / "run.ksd"
    res = run(squares(), options={"checkpoint": path})
    assert res.x.dtype == torch.float64
    with pytest.raises(ValueError, match="the saved run is in float64, the problem in float32"):
        ksdmin.resume(path, squares("float32"))


# Its end is a point of the float32 problem again


@pytest.mark.parametrize("blocks", [False, True], ids=["", "blocks"])
def test_a_point_in_float64_is_taken_again(blocks):
    def residual(model, x):
        return model(x) - torch.sin(x[:, :1])

    model = net()
    problem = (
        ksdmin.from_torch(model, residuals=[(residual, X, 1.0)]) if blocks else squares(model=model)
    )
    rounded = problem.x0 + 0.1
    end = rounded.double() + 1e-10
    assert problem.value(end) == problem.value(rounded)
    assert torch.equal(problem.value_and_gradient(end)[1], problem.value_and_gradient(rounded)[1])
    again = ksdmin.minimize(problem, end, rng=0, options={"maxiter": 0})
    assert torch.equal(again.x, rounded)


def test_validation_by_another_problem_goes_on_after_the_turn():
    held_out = squares()
    res = run(squares(), options={"validation": held_out.value, "patience": 50})
    assert res.x.dtype == torch.float64
    assert res.validation.fun <= held_out.value(res.x)

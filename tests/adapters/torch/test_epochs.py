"""Data as a function of the epoch: another set for each iteration, as of collocation points."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import ksdmin
from tests.adapters.torch import dense
from tests.nets import tanh_net

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


def net(device="cpu"):
    return tanh_net(1, 8, 1).double().to(device)


def points(epoch):
    """Another number of them in each epoch."""
    generator = torch.Generator().manual_seed(epoch)
    X = torch.rand(20 + 3 * epoch, 1, generator=generator, dtype=torch.float64)
    return X, torch.sin(3 * X)


def make(data=points, device="cpu", loss=None, **options):
    return ksdmin.from_torch(net(device), loss or nn.MSELoss(), data, **options)


def assert_same(problem, idx, right, device):
    tolerance = 0.0 if device == "cpu" else 1e-9
    dense.assert_same(problem, right, tolerance, [idx], [slice(None)])


@pytest.mark.parametrize("device", DEVICES)
def test_the_numbers_of_each_set(device):
    """Sets of several sizes: CUDA graphs are replayed with padding, or captured anew."""
    problem = make(device=device, chunk_size=16)
    for epoch in (0, 3, 1, 0, 12, 11):
        sets = problem.subsets.draw(epoch, None, None)
        assert sets.A is sets.B is sets.C
        right = make(points(epoch), chunk_size=16)
        for idx in (sets.A, points(epoch)):
            assert_same(problem, idx, right, device)


def test_a_run_takes_the_set_of_each_iteration():
    asked = []

    def data(epoch):
        asked.append(epoch)
        return points(epoch)

    res = ksdmin.minimize(make(data), rng=0, options={"maxiter": 4})
    history = res.history
    assert list(history["size_B"]) == list(history["size_C"]) == [20, 23, 26, 29, 32]
    taken = history["accepted"]  # a step that is refused leaves the gradient that is there
    assert list(history["size_A"][taken]) == list(history["size_B"][taken])
    assert set(asked) == set(range(5))
    assert res.status == ksdmin.minimize(make(), rng=0, options={"maxiter": 4}).status
    assert not res.success  # no set is the whole: the run ends by its limits


def goes_on(problem, first, then):
    """Whether a run goes on with the set of one epoch in another."""
    before, after = (problem.subsets.draw(epoch, None, None) for epoch in (first, then))
    return after.with_objects_of(before.A).all_are(before.A)


def test_a_dataset_is_another_set_as_another_object():
    assert not goes_on(make(lambda epoch: TensorDataset(*points(0))), 0, 1)
    kept = TensorDataset(*points(0))
    assert goes_on(make(lambda epoch: kept), 0, 1)


def test_the_same_object_is_the_same_set():
    kept = [points(i) for i in range(2)]
    problem = make(lambda epoch: kept[epoch // 10 % 2])
    first, later, other = (problem.subsets.draw(i, None, None).A for i in (0, 9, 10))
    assert first is later
    assert first is not other
    res = ksdmin.minimize(problem, rng=0, options={"maxiter": 10})
    values = list(res.history["value"])[:10]
    assert values == sorted(values, reverse=True)  # on one set no step goes up


def test_forms_and_class_weights():
    def data(epoch):
        X = points(epoch)[0]
        return TensorDataset(X, (X[:, 0] * 2).long() * (epoch != 5) - 100 * (epoch == 5))

    def make(data):
        model = nn.Linear(1, 2).double()
        nn.init.constant_(model.weight, 0.3)
        nn.init.zeros_(model.bias)
        weight = torch.tensor([1.0, 5.0], dtype=torch.float64)
        return ksdmin.from_torch(model, nn.CrossEntropyLoss(weight), data)

    problem = make(data)
    for epoch in (0, 2):
        right, idx = make(data(epoch)), problem.subsets.draw(epoch, None, None).A
        assert problem.value(problem.x0, idx) == right.value(right.x0)
    with pytest.raises(ValueError, match="every target is ignored"):
        problem.subsets.draw(5, None, None)


def unseeded(epoch):
    X = torch.rand(10, 1, dtype=torch.float64)
    return X, X


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (unseeded, ValueError, "must return the same for the same epoch"),
        (lambda epoch: torch.ones(3), TypeError, r"expected \(inputs, targets\)"),
        (lambda epoch: (torch.ones(0, 1), torch.ones(0, 1)), ValueError, "no samples"),
    ],
)
def test_what_the_function_must_return(data, error, message):
    with pytest.raises(error, match=message):
        make(data)


def test_refused():
    with pytest.raises(TypeError, match="sample_weight= goes with data that are the same"):
        make(sample_weight=[1.0])
    problem = make()
    with pytest.raises(TypeError, match=r"expected \(inputs, targets\)"):
        problem.value(problem.x0, torch.arange(3))


def test_scipys_methods_need_one_set():
    with pytest.raises((TypeError, ValueError), match="full="):
        ksdmin.minimize(make(), method="L-BFGS-B")


# Blocks of residuals


EDGE = torch.tensor([[0.0], [1.0]], dtype=torch.float64)


def fit(model, batch):
    return model(batch[0]) - batch[1]


def at_the_edge(model, x):
    return model(x) - 2


def blocks(data=points, device="cpu"):
    return ksdmin.from_torch(net(device), residuals=[(fit, data), (at_the_edge, EDGE, 3.0)])


@pytest.mark.parametrize("device", DEVICES)
def test_the_numbers_of_blocks(device):
    problem = blocks(device=device)
    for epoch in (0, 3, 1, 0):
        sets = problem.subsets.draw(epoch, None, None)
        assert sets.A is sets.B is sets.C
        assert sets.A.shape == (20 + 3 * epoch + 2,)
        assert_same(problem, sets.A, blocks(points(epoch)), device)
    assert_same(problem, slice(None), blocks(points(0)), device)


def test_blocks_that_stay_are_whole_in_every_iteration():
    seen = []

    def edge(model, x):
        seen.append(len(x))
        return model(x) - 2

    problem = ksdmin.from_torch(net(), residuals=[(fit, points), (edge, EDGE)])
    del seen[:]
    res = ksdmin.minimize(problem, rng=0, options={"maxiter": 4})
    assert set(seen) <= {1, 2}  # the rows of a Jacobian are of one point each
    assert list(res.history["size_B"]) == [22, 25, 28, 31, 34]
    assert not res.success


def test_rows_that_do_not_fit_into_memory_leave_krylov_spaces():
    problem = ksdmin.from_torch(net(), residuals=[(fit, points)])
    few = {"maxiter": 2, "memory_budget": 12 * 8 * problem.x0.numel()}
    narrow, free = (ksdmin.minimize(problem, rng=0, options=o) for o in (few, {"maxiter": 2}))
    assert narrow.history["dim"].max() > 1
    assert free.history["dim"].max() == 1


def test_sets_that_blocks_of_epochs_do_not_take():
    problem = blocks()
    with pytest.raises(TypeError, match=r"expected what problem.subsets draws, or slice\(None\)"):
        problem.value(problem.x0, torch.arange(3))
    with pytest.raises(ValueError, match="must return the same for the same epoch"):
        blocks(unseeded)

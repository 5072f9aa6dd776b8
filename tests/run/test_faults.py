"""Faults at any call of user code: no best point is lost, none hangs, none is called a success."""

import zlib

import numpy as np
import pytest

from tests.nets import tanh_net
from tests.run import faults

VERBS = {"numpy": ("value", "gradient", "product"), "samples": ("value", "gradient")}
CASES = [
    (run, method, verb) for run in faults.RUNS for method in ("ksd", "hf") for verb in VERBS[run]
]
every_case = pytest.mark.parametrize(("run", "method", "verb"), CASES)


def some_calls(run, method, verb, count):
    """Call indices spread over a run, the first among them."""
    calls = faults.calls_of(run, method, verb)
    seed = zlib.crc32(f"{run} {method} {verb}".encode())
    chosen = np.random.default_rng(seed).permutation(np.arange(2, max(3, calls + 1)))
    return [1, *sorted(int(at) for at in chosen[: count - 1])]


@pytest.mark.parametrize(
    ("run", "method", "verb", "kind"),
    [
        (*case, kind)
        for case in CASES
        for kind in faults.KINDS
        if case[-1] == "value" or kind in ("nan", "exception")  # a lower value looks like a gain
    ],
)
def test_a_fault_at_some_calls(run, method, verb, kind):
    for at in some_calls(run, method, verb, 2):
        faults.check(run, method, verb, at, kind)


@every_case
def test_faults_from_some_call_on(run, method, verb):
    for at in some_calls(run, method, verb, 2):
        faults.check(run, method, verb, at, "nan", forever=True)


def test_a_gradient_that_fails_where_the_value_is_known():
    """The last evaluation of a run on samples: its value is not lost."""
    calls = faults.calls_of("samples", "ksd", "gradient")
    for at in range(1, calls + 1):
        faults.check("samples", "ksd", "gradient", at, "exception")


@pytest.mark.slow
@every_case
@pytest.mark.parametrize("kind", faults.KINDS)
def test_a_fault_at_every_call(run, method, verb, kind):
    calls = faults.calls_of(run, method, verb)
    for at in range(1, min(calls, 60) + 1):
        faults.check(run, method, verb, at, kind)


@pytest.mark.parametrize(
    ("kind", "method"), [("nan", "ksd"), ("inf", "hf"), ("exception", "ksd"), ("exception", "hf")]
)
def test_a_net_whose_loss_fails(kind, method):
    torch = pytest.importorskip("torch")
    calls = []

    def loss(outputs, targets):
        calls.append(outputs)
        losses = ((outputs - targets) ** 2).mean(1)
        if not armed or len(calls) != at:
            return losses
        if kind == "exception":
            raise faults.Broken
        return losses * float(kind)

    armed, at = False, 0
    X = torch.as_tensor(np.random.default_rng(0).standard_normal((60, 2)))
    model = tanh_net(2, 3, 1)
    problem = faults.ksdmin.from_torch(model.double(), loss, (X, X[:, :1] * X[:, 1:]))
    first, armed = problem.value(problem.x0), True
    for at in (2, 10, 31):  # with "hf" at the start, in a product, while a step is judged
        calls.clear()
        try:
            res = faults.ksdmin.minimize(problem, rng=0, method=method, options={"maxiter": 12})
        except faults.Broken as error:
            res = error.ksdmin_result
            assert res.status == faults.Status.FAILED
        assert np.isnan(res.fun) or res.fun <= first * (1 + 1e-9)
        assert np.isfinite(res.fun) or at == 2
        assert not res.success or float(abs(res.jac).max()) <= 1e-5


def test_a_data_loader_that_fails(tmp_path):
    """The run is saved first, and goes on when the loader works again."""
    torch = pytest.importorskip("torch")

    class Rows(torch.utils.data.Dataset):
        broken = False

        def __len__(self):
            return 16

        def __getitem__(self, i):
            if Rows.broken and i == 7:
                raise faults.Broken
            x = torch.sin(torch.arange(3, dtype=torch.float64) * i)
            return x, x[:1] ** 2

    def problem():
        model = tanh_net(3, 3, 1).double()
        return faults.ksdmin.from_torch(model, torch.nn.MSELoss(), Rows(), memory_budget=3e2)

    def callback(intermediate_result):
        Rows.broken = intermediate_result.nit == 2

    options = {"maxiter": 5, "checkpoint": tmp_path / "run.ksd"}
    whole = faults.ksdmin.minimize(problem(), rng=0, options={"maxiter": 5})
    try:
        with pytest.raises(faults.Broken) as caught:
            faults.ksdmin.minimize(problem(), rng=0, options=options, callback=callback)
    finally:
        Rows.broken = False
    assert caught.value.ksdmin_result.nit == 2
    res = faults.ksdmin.resume(tmp_path / "run.ksd", problem())
    np.testing.assert_array_equal(res.x, whole.x)

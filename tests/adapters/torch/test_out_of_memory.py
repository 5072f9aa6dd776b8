"""A device that is out of memory: the chunks are halved, and the run is the same to rounding."""

import logging

import numpy as np
import pytest
import torch

import ksdmin
from ksdmin._adapters.torch.kernels import Kernels
from ksdmin._adapters.torch.matrices import JacobianRows
from ksdmin._ksd.steps import gauss_newton
from ksdmin._problem.team import ALONE
from tests.nets import tanh_net
from tests.run import runs


@pytest.fixture
def room(monkeypatch):
    """A device with room for so many samples, once it is set."""
    room = {"samples": 10**9, "refused": 0}

    def limited(kernel):
        own = getattr(Kernels, kernel)

        def run(self, x, chunk):
            if len(chunk[2]) > room["samples"]:
                room["refused"] += 1
                raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate ...")
            return own(self, x, chunk)

        monkeypatch.setattr(Kernels, kernel, run)

    for kernel in ("value", "gradient", "product"):
        limited(kernel)
    return room


@pytest.mark.parametrize("method", ["ksd", "hf"])
def test_the_chunks_are_halved(room, method, caplog):
    arguments = runs.net(method=method, options={"maxiter": 4})
    whole = ksdmin.minimize(**arguments)

    def callback(intermediate_result):
        if intermediate_result.nit == 2:
            room["samples"] = 40

    with caplog.at_level(logging.INFO, logger="ksdmin"):
        res = ksdmin.minimize(**{**arguments, "callback": callback})
    assert room["refused"] >= 3  # 300, 150, 75
    assert res.nit == whole.nit
    np.testing.assert_allclose(res.x, whole.x, atol=0.001)  # rounding, after two more steps
    assert res.fun == pytest.approx(whole.fun, rel=1e-3)
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [r.message for r in warnings] == [
        "out of memory: from here on at most 150 samples at once"
    ]


def test_a_product_that_runs_out_of_memory_later(monkeypatch):
    problem, calls = runs.net()["fun"], []
    x, v = problem.x0, torch.ones_like(problem.x0)
    product = problem.curvature(x, slice(None))
    wanted = product(v)
    own = Kernels.product

    def once(self, x, chunk):
        times = own(self, x, chunk)

        def multiply(v):
            calls.append(len(chunk[2]))
            if len(calls) == 1:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory")
            return times(v)

        return multiply

    monkeypatch.setattr(Kernels, "product", once)
    product = problem.curvature(x, slice(None))
    torch.testing.assert_close(product(v), wanted)
    assert calls == [300, 150, 150]


# Damped steps, which hold the rows of the Jacobian of all samples


class Curve:
    """A small net, fitted to a wave, on a device with room for the rows of so many samples."""

    def __init__(self, monkeypatch):
        self.room, self.calls = 10**9, []
        own = JacobianRows.rows

        def rows(kernel, x, chunk):
            self.calls.append(len(chunk[2]))
            if len(chunk[2]) > self.room:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate ...")
            return own(kernel, x, chunk)

        monkeypatch.setattr(JacobianRows, "rows", rows)

    def problem(self):
        x = torch.linspace(-1, 1, 60, dtype=torch.float64)[:, None]
        net = tanh_net(1, 20, 1).double()
        return ksdmin.from_torch(net, torch.nn.MSELoss(), (x, torch.sin(4 * x)))

    def fitted(self, problem=None, maxiter=4):
        options = {"maxiter": maxiter, "gtol": 1e-9}
        return ksdmin.minimize(problem or self.problem(), rng=0, options=options)


@pytest.fixture
def curve(monkeypatch):
    return Curve(monkeypatch)


def said(caplog):
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


KRYLOV = "out of memory: from here on steps have Krylov spaces, not the rows of a Jacobian"


def test_chunks_of_rows_are_halved_apart_from_others(curve):
    whole, problem = curve.fitted(), curve.problem()
    curve.room = 20
    curve.calls.clear()
    res = curve.fitted(problem)
    assert curve.calls[:6] == [60, 30, 15, 15, 15, 15]
    assert set(curve.calls[6:]) == {15}
    assert problem._sums._max_rows >= 60
    assert res.history["dim"].max() == 1
    np.testing.assert_allclose(res.history["value"], whole.history["value"], rtol=1e-6)
    assert (res.nfev, res.nhev) == (whole.nfev, whole.nhev)


def test_where_no_chunk_of_rows_fits_steps_have_krylov_spaces(curve, caplog):
    problem = curve.problem()
    curve.room = 0
    res = curve.fitted(problem, maxiter=8)  # most of them of the model
    assert res.nit == 8
    assert res.fun < 0.6 * res.history["value"][0]
    assert curve.calls == [60, 30, 15, 7, 3, 1]  # in the first step, and never again
    assert said(caplog) == [KRYLOV]
    assert problem._sums._max_rows >= 60
    curve.room = 10**9
    assert curve.fitted(problem).history["dim"].max() == 1  # nothing of it is left


def test_rows_that_do_not_fit_are_not_tried_in_smaller_chunks(curve, monkeypatch, caplog):
    problem, own = curve.problem(), torch.Tensor.new_empty

    def limited(tensor, *shape, **kwargs):
        if np.prod(shape) >= 60 * len(problem.x0):
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate ...")
        return own(tensor, *shape, **kwargs)

    monkeypatch.setattr(torch.Tensor, "new_empty", limited)
    res = curve.fitted(problem)
    assert res.nit == 4
    assert not curve.calls
    assert said(caplog) == [KRYLOV]


@pytest.mark.parametrize("error", [torch.cuda.OutOfMemoryError("CUDA ..."), MemoryError("20 GiB")])
def test_where_the_equations_do_not_fit_likewise(curve, error, monkeypatch, caplog):
    def equations(*args):
        raise error

    monkeypatch.setattr(gauss_newton, "GaussNewton", equations)
    res = curve.fitted()
    assert res.nit == 4
    assert curve.calls == [60]
    assert said(caplog) == [KRYLOV]


def test_one_of_several_processes_does_not_change_its_mind_alone(curve, monkeypatch):
    problem = curve.problem()
    curve.room = 0
    monkeypatch.setattr(ALONE, "size", 2, raising=False)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        curve.fitted(problem)


def test_a_run_goes_on_with_krylov_spaces_from_a_file(curve, tmp_path):
    problem, path = curve.problem(), tmp_path / "run.ksd"
    curve.room = 0
    whole = curve.fitted(problem)
    ksdmin.minimize(problem, rng=0, options={"maxiter": 2, "gtol": 1e-9, "checkpoint": path})
    curve.calls.clear()
    res = ksdmin.resume(path, problem, options={"maxiter": 4})
    assert not curve.calls
    np.testing.assert_array_equal(res.x, whole.x)


def test_inference_mode_is_refused_by_name():
    arguments = runs.net()
    with torch.inference_mode():
        for call in (runs.net, runs.tensors, lambda: ksdmin.minimize(**arguments)):
            with pytest.raises(RuntimeError, match=r"inference_mode\(\) is on"):
                call()
        net = torch.nn.Linear(2, 1)
        with pytest.raises(RuntimeError, match=r"inference_mode\(\) is on"):
            ksdmin.torch.KSD(net.parameters()).step(lambda: net(torch.ones(2)).sum())
    with torch.no_grad():
        assert ksdmin.minimize(**runs.net()).nit == 7

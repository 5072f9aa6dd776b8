"""Faults at any call of user code: no best point is lost, none hangs, none is called a success."""

import zlib

import numpy as np
import pytest

from tests.solver import faults, runs

VERBS = {
    "numpy": ("value", "gradient", "product"),
    "samples": ("value", "gradient"),
    "torch": ("value", "gradient", "product"),
    "jax": ("value", "gradient"),
}
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


@every_case
@pytest.mark.parametrize("kind", faults.KINDS)
def test_a_fault_at_some_calls(run, method, verb, kind):
    for at in some_calls(run, method, verb, 2):
        faults.check(run, method, verb, at, kind)


@every_case
def test_faults_from_some_call_on(run, method, verb):
    for at in some_calls(run, method, verb, 2):
        faults.check(run, method, verb, at, "nan", forever=True)


@pytest.mark.slow
@every_case
@pytest.mark.parametrize("kind", faults.KINDS)
def test_a_fault_at_every_call(run, method, verb, kind):
    calls = faults.calls_of(run, method, verb)
    for at in range(1, min(calls, 60) + 1):
        faults.check(run, method, verb, at, kind)


@pytest.mark.parametrize("name", ["rosenbrock", "hessian_free", "samples", "net", "jax_function"])
def test_a_fault_of_the_callback(name):
    def callback(intermediate_result):
        if intermediate_result.nit == 3:
            raise faults.Broken

    with pytest.raises(faults.Broken) as caught:
        faults.ksdmin.minimize(**{**runs.ALL[name](), "callback": callback})
    res = caught.value.ksdmin_result
    assert (res.nit, res.status) == (3, faults.Status.FAILED)
    assert np.isfinite(res.fun) or name == "samples"

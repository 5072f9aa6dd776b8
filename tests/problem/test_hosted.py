"""Runs of jax arrays on the CPU: numpy inside, jax's arrays for whoever looks."""

import numpy as np
import pytest
from scipy.optimize import Bounds

import ksdmin
from tests.jax_precision import jax_in

jax = pytest.importorskip("jax")
jnp = jax.numpy


@pytest.fixture(autouse=True)
def single():
    with jax_in("float32"):
        yield


def is_jax(*arrays, dtype="float32"):
    return all(isinstance(u, jax.Array) and u.dtype == dtype for u in arrays)


def fun(x):
    assert is_jax(x)
    return compiled(x)


@jax.jit
def compiled(x):
    return jnp.sum((x - 1) ** 4) + x @ x


grad = jax.jit(jax.grad(compiled))
X0 = np.linspace(-2, 2, 6, dtype="f")


def test_whoever_looks_sees_jax():
    seen = []

    def callback(intermediate_result):
        seen.append((intermediate_result.x, np.array(intermediate_result.x)))
        assert is_jax(intermediate_result.x, intermediate_result.jac)

    res = ksdmin.minimize(
        fun, jax.device_put(X0), jac=grad, callback=callback, options={"return_all": True}
    )
    assert res.success
    assert len(seen) == res.nit
    assert all((np.array(x) == then).all() for x, then in seen)  # nothing was written into it
    assert is_jax(res.x, res.jac, *res.allvecs)
    assert np.abs(np.asarray(grad(res.x))).max() < 1e-4


def test_user_code_that_is_asked_in_a_run_gets_jax():
    def precond(x):
        assert is_jax(x)
        return 12 * (x - 1) ** 2 + 2

    def hess(x):
        assert is_jax(x)
        return jnp.diag(12 * (x - 1) ** 2 + 2)

    x0 = jax.device_put(X0)
    bounds = Bounds(-2, [0, 2, 2, 2, 2, 2])
    for more in ({"precond": precond}, {"hess": hess}, {"bounds": bounds}, {"jac": "2-point"}):
        res = ksdmin.minimize(fun, x0, **({"jac": grad, "tol": 1e-3} | more))
        assert is_jax(res.x, res.jac)
        assert (abs(float(res.x[0])) < 1e-6) == ("bounds" in more)


def test_the_callables_of_an_adapter_get_jax():
    def precond(x, idx):
        assert is_jax(x)
        return 12 * (x - 1) ** 2 + 2

    x0 = jax.device_put(X0)
    problem = ksdmin.from_jax(compiled, x0=x0, precond=precond)
    assert is_jax(ksdmin.minimize(problem, tol=1e-3).x)
    model = ksdmin.from_jax(
        lambda p, inputs: inputs @ p,
        "squared-error",
        (np.eye(6, dtype="f"), np.ones(6, "f")),
        params=x0,
        curvature=lambda x, idx: (lambda v: v / 3) if is_jax(x) else None,
        precond=lambda x, idx: x**2 + 1,
    )
    assert is_jax(ksdmin.minimize(model, rng=0, tol=1e-3).x)


def test_the_verbs_of_a_users_problem_get_jax():
    class Bowl:
        def value(self, x, idx):
            return fun(x)

        def value_and_gradient(self, x, idx):
            return fun(x), grad(x)

        def curvature(self, x, idx):
            return lambda v: v * (12 * (x - 1) ** 2 + 2) if is_jax(v) else None

    res = ksdmin.minimize(Bowl(), jax.device_put(X0), tol=1e-3)
    assert res.success
    assert is_jax(res.x, res.jac)


def test_an_array_that_is_bound_to_a_device_stays_so():
    bound = jax.device_put(X0, jax.devices()[0])
    res = ksdmin.minimize(fun, bound, jac=grad, tol=1e-3)
    assert res.x.committed
    assert not ksdmin.minimize(fun, jnp.asarray(X0), jac=grad, tol=1e-3).x.committed


def test_hf():
    res = ksdmin.minimize(ksdmin.from_jax(compiled, x0=jax.device_put(X0)), method="hf", tol=1e-3)
    assert is_jax(res.x, res.jac)

"""How often from_jax compiles."""

from contextlib import contextmanager

import numpy as np
import pytest

import ksdmin
from tests.adapters.functional.backends import jax_settings

jax = pytest.importorskip("jax")
from ksdmin._adapters.functional.jax_arrays import Program  # noqa: E402

jnp = jax.numpy
COMPILED = []
rng = np.random.default_rng(0)
N = 150
X, LABELS = rng.standard_normal((N, 5)), rng.integers(3, size=N)


def _listen(event, duration, **_):
    if event == "/jax/core/compile/backend_compile_duration":
        COMPILED.append(event)


jax.monitoring.register_event_duration_secs_listener(_listen)


@contextmanager
def compilations(at_most):
    COMPILED.clear()
    yield
    assert len(COMPILED) <= at_most


@pytest.fixture(params=[False, True], ids=["float32", "float64"])
def dtype(request):
    with jax_settings(x64=request.param):
        yield "float64" if request.param else "float32"


def net(params, inputs):
    return jnp.tanh(inputs @ params["W"] + params["b"]) @ params["V"]


def parameters(seed):
    rng = np.random.default_rng(seed)
    return {"W": rng.standard_normal((5, 6)), "b": np.zeros(6), "V": rng.standard_normal((6, 3))}


def test_a_second_run_compiles_nothing(x64):
    def run(seed):
        problem = ksdmin.from_jax(
            net, "softmax-cross-entropy", (X, LABELS), params=parameters(seed), l2=1e-3
        )
        return ksdmin.minimize(problem, rng=seed, options={"maxiter": 8})

    with compilations(at_most=5):  # the gradient's, the diagonal's, two for products; one to spare
        res = run(0)
    assert res.nhev > 0
    assert res.x.dtype == "float64"
    with compilations(at_most=0):
        run(1)


def test_an_option_that_xla_does_not_know_is_left_out():
    program = Program(lambda x: 2 * x + 1, {"xla_no_such_option": True})
    assert program(np.float32(3.0)) == 7.0


@pytest.mark.parametrize("given", ["from_jax", "jac", "hessp"])
def test_a_plain_function(dtype, given):
    A = jnp.asarray(np.diag(np.arange(1.0, 9.0)), dtype=dtype)

    def fun(x):
        return x @ (A @ x) / 2 + jnp.sum(jnp.cos(x))

    grad = jax.jit(jax.grad(fun))
    hessp = jax.jit(lambda x, p: jax.jvp(grad, (x,), (p,))[1])
    compiled = jax.jit(fun)

    def run(seed):
        x0 = np.random.default_rng(seed).standard_normal(8).astype(dtype)
        x0 = jax.device_put(x0)
        if given == "from_jax":
            return ksdmin.minimize(ksdmin.from_jax(fun, x0=x0))
        return ksdmin.minimize(compiled, x0, jac=grad, hessp=hessp if given == "hessp" else None)

    with compilations(at_most=10):
        run(0)
    with compilations(at_most=0):
        run(1)


# --- One compiled function must not serve another one ---


def test_functions_that_close_over_different_arrays(x64):
    values = [
        ksdmin.from_jax(lambda x, A=A: jnp.sum((A @ x) ** 2), x0=np.ones(2)).value(np.ones(2))
        for A in (jnp.eye(2), 3 * jnp.eye(2), np.full((2, 2), 2.0))
    ]
    assert values == [2.0, 18.0, 32.0]


def test_what_a_function_reads_may_change_between_problems(x64):
    scale = 2.0

    def fun(x):
        return scale * x @ x

    first = ksdmin.from_jax(fun, x0=np.ones(3)).value(np.ones(3))
    scale = 5.0
    assert (first, ksdmin.from_jax(fun, x0=np.ones(3)).value(np.ones(3))) == (6.0, 15.0)

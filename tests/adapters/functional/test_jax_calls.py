"""Calls of minimize with jax's arrays: differentiated where jax can, and clear words where not."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

import ksdmin
from tests.adapters.functional.backends import jax_settings

jax = pytest.importorskip("jax")
jnp = jax.numpy


@pytest.fixture(params=[True, False])
def x64(request):
    with jax_settings(x64=request.param):
        yield request.param


def quartic(x, shift=1.0):
    return jnp.sum((x - shift) ** 4) + jnp.sum(x**2) / 2


def minimum(shift):
    """The root of 4 (x - shift)^3 + x, by Newton's method."""
    x = 0.5
    for _ in range(50):
        x -= (4 * (x - shift) ** 3 + x) / (12 * (x - shift) ** 2 + 1)
    return x


# Differentiated


def test_functions_are_differentiated(x64):
    res = ksdmin.minimize(quartic, jnp.zeros(3), tol=1e-4)
    assert res.success
    assert res.nhev > 0  # exact products
    assert isinstance(res.x, jax.Array)
    assert res.x.dtype == (jnp.float64 if x64 else jnp.float32)
    assert_allclose(res.x, minimum(1.0), rtol=1e-3)
    assert_allclose(ksdmin.covariance(res), np.eye(3) / (12 * (res.x[0] - 1) ** 2 + 1), rtol=1e-5)


def test_args_bounds_solver_and_other_methods():
    with jax_settings(x64=True):
        res = ksdmin.minimize(quartic, jnp.zeros(3), args=(2.0,))
        assert_allclose(res.x, minimum(2.0), rtol=1e-5)
        seen = []
        res = ksdmin.minimize(
            quartic, jnp.zeros(2), bounds=[(None, 0.25), (None, None)], callback=seen.append
        )
        assert res.nhev > 0
        assert_allclose(res.x, [0.25, minimum(1.0)], rtol=1e-5)
        solver = ksdmin.Solver(quartic, jnp.zeros(3))
        assert_allclose([it.x for it in solver][-1], minimum(1.0), rtol=1e-5)
        other = ksdmin.minimize(quartic, jnp.zeros(3), method="trust-ncg")
        assert_allclose(other.x, minimum(1.0), rtol=1e-4)


def test_sums_over_samples_are_differentiated():
    with jax_settings(x64=True):
        X = jnp.asarray(np.random.default_rng(0).standard_normal((200, 3)))
        y = X @ jnp.array([1.0, -2.0, 0.5])

        def fun(w, idx):
            return jnp.mean((X[idx] @ w - y[idx]) ** 2)

        res = ksdmin.minimize(fun, jnp.zeros(3), subsets=200, rng=0)
        assert res.success
        assert res.nhev > 0
        assert_allclose(res.x, [1, -2, 0.5], rtol=1e-4)


# Not differentiated: as before, by differences


def test_functions_that_jax_cannot_trace():
    with jax_settings(x64=True):
        res = ksdmin.minimize(lambda x: float(np.sum((np.asarray(x) - 1) ** 2)), jnp.zeros(3))
    assert res.success
    assert res.nhev == 0
    assert_allclose(res.x, 1, rtol=1e-5)


def test_a_part_without_gradient_is_noticed():
    def fun(x):
        return jnp.sum(x**2) + jnp.sum((jax.lax.stop_gradient(x) - 2) ** 2)

    with jax_settings(x64=True):
        res = ksdmin.minimize(fun, jnp.zeros(3))
    assert_allclose(res.x, 1, rtol=1e-5)


def test_a_function_that_is_not_pure_is_not_compiled():
    """A traced function would have one value of the counter for ever."""
    calls = []

    def fun(x):
        calls.append(1)
        return jnp.sum((x - 1) ** 2) + 1e-3 * len(calls)

    with jax_settings(x64=True):
        ksdmin.minimize(fun, jnp.zeros(2), options={"maxiter": 2})
    assert len(calls) > 10


# Words


@pytest.mark.parametrize(
    ("tree", "entry"),
    [
        (lambda: {"a": jnp.zeros(3)}, "from_jax"),
        (lambda: [jnp.zeros(3), jnp.zeros(2)], "from_jax"),
        (lambda: (jnp.zeros(3), jnp.zeros(3)), "from_jax"),
        (lambda: {"a": {"b": np.zeros(3)}}, "from_jax or from_autograd"),
        (lambda: {"a": torch().zeros(3)}, "from_torch"),
        (lambda: torch().nn.Linear(2, 1), "from_torch"),
    ],
)
def test_a_tree_is_told_where_to_go(tree, entry):
    with pytest.raises(TypeError, match=rf"not a vector: {entry} takes.*\(fun, x0=x0\)"):
        ksdmin.minimize(lambda p: 0.0, tree())


def torch():
    return pytest.importorskip("torch")


def least(x):
    return ksdmin.minimize(quartic, x).x


def least_from_jax(x):
    return ksdmin.minimize(ksdmin.from_jax(quartic, x0=x)).x


def least_of_closure(x):
    return ksdmin.minimize(lambda y: quartic(y, x[0]), np.zeros(2)).x


def least_of_closure_from_jax(x):
    return ksdmin.minimize(ksdmin.from_jax(lambda y: quartic(y, x[0]), x0=np.zeros(2))).x


@pytest.mark.parametrize(
    ("within", "transformed"),
    [
        (least, lambda f: jax.jit(f)(jnp.zeros(3))),
        (least_from_jax, lambda f: jax.vmap(f)(jnp.zeros((2, 3)))),
        (least_of_closure, lambda f: jax.jit(f)(jnp.zeros(3))),
        (least_of_closure_from_jax, lambda f: jax.jit(f)(jnp.zeros(3))),
        (least_of_closure_from_jax, lambda f: jax.grad(lambda x: f(x).sum())(jnp.zeros(3))),
    ],
    ids=["jit", "vmap", "jit of a closure", "jit of a closure in jax", "grad"],
)
def test_under_a_transformation(within, transformed):
    with pytest.raises(TypeError, match=r"cannot run within jax\.jit") as told:
        transformed(within)
    assert "\n" not in str(told.value)


def test_loops_without_reverse_mode():
    """Jax says itself what to use instead."""

    def fun(x):
        body = lambda s: (s[0] ** 2, s[1] + 1)  # noqa: E731
        return jax.lax.while_loop(lambda s: s[1] < 3, body, (x, 0))[0].sum()

    problem = ksdmin.from_jax(fun, x0=jnp.ones(2))
    with pytest.raises(ValueError, match=r"Reverse-mode differentiation.*lax\.scan"):
        problem.value_and_gradient(problem.x0)


Z = np.random.default_rng(0).standard_normal((300, 6)).astype(np.float32)


def rough(x):
    """A sum whose rounding in float32 hides what the last steps gain."""
    return jnp.sum(jnp.logaddexp(0, Z @ x)) - 0.3 * jnp.sum(Z @ x)


def test_float32_names_the_setting_of_jax():
    with jax_settings(x64=False):
        res = ksdmin.minimize(rough, jnp.zeros(6), tol=1e-9)
        assert ksdmin.Status(res.status).name == "PRECISION_LOSS"
        assert 'jax.config.update("jax_enable_x64", True)' in res.message
    with jax_settings(x64=True):
        res = ksdmin.minimize(rough, jnp.zeros(6), tol=1e-17)
        assert "float32" not in res.message


def test_float32_of_torch_and_numpy():
    t = torch()

    def by_torch(x):
        z = t.as_tensor(Z) @ x
        return t.nn.functional.softplus(z).sum() - 0.3 * z.sum()

    res = ksdmin.minimize(by_torch, t.zeros(6), tol=1e-9)
    assert res.status == ksdmin.Status.PRECISION_LOSS
    assert "x0.double()" in res.message
    res = ksdmin.minimize(
        lambda x: np.logaddexp(np.float32(0), Z @ x).sum() - np.float32(0.3) * (Z @ x).sum(),
        np.zeros(6, np.float32),
    )
    assert res.status == ksdmin.Status.PRECISION_LOSS
    assert "x0.astype(float)" in res.message


# Sparse data


A = sparse.random_array((40, 4), density=0.5, rng=np.random.default_rng(0), format="csr")


@pytest.mark.parametrize("library", ["jax", "autograd"])
def test_sparse_data_are_told_where_to_go(library):
    """Those of jax; those of scipy are in test_kinds_of_data.py."""
    pytest.importorskip(library)
    from jax.experimental.sparse import BCOO

    entry, X = getattr(ksdmin, f"from_{library}"), BCOO.fromdense(jnp.asarray(A.toarray()))
    for given in (
        {"model": lambda w, x: x @ w, "loss": "squared-error", "data": (X, np.ones((40, 1)))},
        {"residuals": [(lambda w, x: x @ w, X)]},
    ):
        with pytest.raises(TypeError, match=r"dense arrays.*minimize\(fun, x0, jac=jac, subsets=N"):
            entry(**given, params=np.ones((4, 1)))


@pytest.mark.parametrize("library", ["jax", "autograd"])
def test_scipy_sparse_within_a_function(library):
    pytest.importorskip(library)
    problem = getattr(ksdmin, f"from_{library}")(lambda w: ((A @ w) ** 2).sum(), x0=np.ones(4))
    with pytest.raises(TypeError) as told:
        ksdmin.minimize(problem)
    assert any("ksdmin.minimize(fun, x0, jac=jac)" in note for note in told.value.__notes__)

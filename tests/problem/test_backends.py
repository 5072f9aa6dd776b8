"""One run, whatever library holds its arrays: it stays in x0's library, dtype and device."""

import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from array_api_compat import array_namespace
from scipy.optimize import rosen, rosen_der, rosen_hess_prod

import ksdmin
from ksdmin._ksd.steps import krylov
from ksdmin._problem import arrays as _arrays

K = 6
SMALL = 2 * (K + 1) + 5  # numbers that may come home at once: two rows and a few scalars
DEFAULT, PAPER = {"krylov_dim": K, "memory": 1}, ksdmin.PAPER | {"krylov_dim": K}
presets = pytest.mark.parametrize("preset", [DEFAULT, PAPER], ids=["default", "PAPER"])


def quartic(backend, n=20):
    """(x - b)^T A (x - b) / 2 + sum(x^4) / 4, and its minimum in float64."""
    A_, b_ = 3 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1), np.linspace(-2, 1, n)
    A, b, one = backend.asarray(A_), backend.asarray(b_), backend.asarray(np.eye(n))
    x = np.zeros(n)
    for _ in range(30):
        x -= np.linalg.solve(A_ + np.diag(3 * x**2), A_ @ (x - b_) + x**3)

    def fun(x):
        assert backend.holds(x)
        xp = array_namespace(x)
        return xp.sum((x - b) * (A @ (x - b))) / 2 + xp.sum(x**4) / 4

    def jac(x):
        assert backend.holds(x)
        return A @ (x - b) + x**3

    def hessp(x, p):
        assert backend.holds(x)
        assert backend.holds(p)
        return A @ p + 3 * x**2 * p

    return SimpleNamespace(
        x0=backend.asarray(np.full(n, 1.5)),
        solution=x,
        fun=fun,
        jac=jac,
        hessp=hessp,
        hess=lambda x: A + one * (3 * x**2),
        pair=lambda x: (fun(x), jac(x)),
        diagonal=backend.asarray(np.full(n, 4.0)),
    )


def logistic(backend, n=20, samples=200):
    """The mean logistic loss over the samples idx, with l2; notes the sets it is asked for."""
    rng, l2 = np.random.default_rng(0), 0.1
    X = rng.standard_normal((samples, n))
    X, y = backend.asarray(X), backend.asarray(np.sign(X @ rng.standard_normal(n)))
    seen = []

    def rows(idx):
        seen.append(idx)
        if isinstance(idx, slice):
            assert idx == slice(None)
            return X, y
        xp = array_namespace(X)
        assert type(idx) is type(X)
        assert idx.dtype == (xp.int64 if backend.double or backend.name != "jax" else xp.int32)
        assert bool(xp.all(idx[1:] > idx[:-1]))
        return xp.take(X, idx, axis=0), xp.take(y, idx)

    def fun(w, idx):
        (X, y), xp = rows(idx), array_namespace(w)
        return xp.mean(xp.log1p(xp.exp(-y * (X @ w)))) + l2 / 2 * (w @ w)

    def jac(w, idx):
        (X, y), xp = rows(idx), array_namespace(w)
        return -(y / (1 + xp.exp(y * (X @ w)))) @ X / X.shape[0] + l2 * w

    def hessp(w, p, idx):
        (X, _), xp = rows(idx), array_namespace(w)
        s = 1 / (1 + xp.exp(-(X @ w)))
        return (s * (1 - s) * (X @ p)) @ X / X.shape[0] + l2 * p

    x0 = backend.asarray(np.zeros(n))
    return SimpleNamespace(x0=x0, fun=fun, jac=jac, hessp=hessp, samples=samples, seen=seen)


def check(backend, res, solution=None, atol=0.0):
    assert res.success, res.message
    assert backend.holds(res.x)
    assert backend.holds(res.jac)
    assert res.x.shape == res.jac.shape
    assert type(res.fun) is float
    assert len(res.history) == res.nit + 1
    assert res.history["value"][-1] == res.fun
    if solution is not None:
        np.testing.assert_allclose(backend.to_numpy(res.x), solution, rtol=0, atol=atol)


@pytest.mark.parametrize(
    ("given", "preset"),
    [("hess", DEFAULT), ("pair", DEFAULT), ("hessp diagonal", DEFAULT), ("jac diagonals", PAPER)],
    ids=["hess", "pair", "hessp diagonal", "jac diagonals-PAPER"],
)
def test_a_plain_function(backend, given, preset):
    p = quartic(backend)
    gtol = 1e-7 if backend.double else 1e-4
    before = backend.to_numpy(p.x0)
    res = ksdmin.minimize(
        p.pair if "pair" in given else p.fun,
        p.x0,
        jac=True if "pair" in given else p.jac,
        hess=p.hess if "hess" in given.split() else None,
        hessp=p.hessp if "hessp" in given else None,
        precond={"diagonal": p.diagonal, "diagonals": lambda x: p.diagonal + 3 * x**2}.get(
            given.split()[-1]
        ),
        options=preset | {"gtol": gtol},
    )
    check(backend, res, p.solution, atol=10 * gtol)
    assert (res.nhev > 0) == ("hess" in given)
    assert (backend.to_numpy(p.x0) == before).all()


@pytest.mark.parametrize("scheme", [None, "cs"])
def test_differences(backend, scheme):
    def fun(x):  # complex x too
        xp = array_namespace(x)  # and xp.sum, as x @ x of complex x is wrong in torch 2.6 on ARM
        return xp.sum(x**4 / 4 - 8 * x) + xp.sum(x * x) ** 2

    x0 = backend.asarray([1.0, 1.5, -2.0])
    gtol = 1e-5 if backend.double else 1e-2
    start = ksdmin.minimize(fun, x0, jac=scheme, options={"maxiter": 0})
    res = ksdmin.minimize(fun, x0, jac=scheme, options=DEFAULT | {"gtol": gtol})
    exact = x0**3 - 8 + 4 * (x0 @ x0) * x0
    np.testing.assert_allclose(
        backend.to_numpy(start.jac), backend.to_numpy(exact), rtol=1e-6 if backend.double else 1e-2
    )
    check(backend, res, np.full(3, (8 / 13) ** (1 / 3)), atol=gtol)
    by_autodiff = scheme is None and backend.name.startswith(("torch", "jax"))
    assert (res.nhev > 0) == by_autodiff


def test_a_sum_of_losses(backend):
    p = logistic(backend)
    gtol = 1e-7 if backend.double else 1e-4
    res = ksdmin.minimize(
        p.fun,
        p.x0,
        jac=p.jac,
        hessp=p.hessp,
        subsets=ksdmin.Subsets(p.samples, curvature=1 / K, search=1 / K),
        rng=0,
        options={"gtol": gtol, "krylov_dim": K, "memory": 1},
    )
    g = backend.to_numpy(p.jac(res.x, slice(None)))
    assert np.abs(g).max() <= 1.01 * gtol
    check(backend, res)
    assert any(not isinstance(idx, slice) for idx in p.seen)


# --- Nothing of length n comes home ---


@pytest.fixture
def sent_home(monkeypatch):
    """The sizes of all that crosses the border."""
    sizes = []

    def to_host(u):
        sizes.append(int(np.prod(u.shape, dtype=int)))
        if hasattr(u, "to_device") and "device1" in str(u.device):
            u = u.to_device(array_namespace(u).Device("CPU_DEVICE"))
        return original(u)

    original = _arrays.to_host
    monkeypatch.setattr(_arrays, "to_host", to_host)
    return sizes


@presets
@pytest.mark.parametrize("given", ["hessp", "jac", "subsets", "precond", "differences"])
def test_nothing_tall_comes_home(remote, sent_home, given, preset):
    p = (logistic if given == "subsets" else quartic)(remote)
    res = ksdmin.minimize(
        p.fun,
        p.x0,
        jac=None if given == "differences" else p.jac,
        hessp=p.hessp if given not in ("jac", "differences") else None,
        subsets=p.samples if given == "subsets" else None,
        precond=p.diagonal if given == "precond" else None,
        rng=0,
        options=preset | {"maxiter": 3, "return_all": True},
    )
    assert res.nit == 3
    assert remote.holds(res.x)
    assert remote.holds(res.jac)
    assert all(remote.holds(x) for x in res.allvecs)
    dim = res.history["dim"].max()  # with a diagonal, the lengths of the basis vectors as well
    assert 0 < max(sent_home) <= max(SMALL, dim**2 if given == "precond" else 0)


# --- What user code may return ---


WRONG = {
    "library": (TypeError, lambda backend, u: backend.to_numpy(u)),
    "shape": (ValueError, lambda backend, u: u[:-1, ...]),
    "complex": (TypeError, lambda backend, u: 1j * u),
}


@pytest.mark.parametrize("backend", [("strict", "float64"), ("torch", "float32")], indirect=True)
@pytest.mark.parametrize("verb", ["fun", "jac", "hessp", "hess", "precond"])
@pytest.mark.parametrize("how", WRONG)
def test_a_wrong_array_is_named(backend, verb, how):
    p = quartic(backend)
    error, spoil = WRONG[how]
    right = {"jac": p.jac, "hessp": p.hessp, "hess": p.hess, "precond": lambda x: p.diagonal}
    given = {"fun": p.fun, "jac": p.jac}
    if verb == "fun":
        given = {"fun": lambda x: (p.fun(x), spoil(backend, p.jac(x))), "jac": True}
    else:
        given[verb] = lambda *xs: spoil(backend, right[verb](*xs))
    with pytest.raises(error, match=f"^{verb}.* returned") as caught:
        ksdmin.minimize(x0=p.x0, options={"krylov_dim": K}, **given)
    assert (backend.to_numpy(caught.value.ksdmin_result.x) == 1.5).all()


@pytest.mark.parametrize("verb", ["jac", "hessp", "precond"])
def test_a_wrong_device_is_named(remote, sent_home, verb):
    p = quartic(remote)
    original = {"jac": p.jac, "hessp": p.hessp, "precond": lambda x: p.diagonal}[verb]

    def astray(x, *v):
        return original(x, *v).to_device(remote.xp.Device("CPU_DEVICE"))

    given = {"jac": p.jac, "hessp": p.hessp} | {verb: astray}
    with pytest.raises(TypeError, match=f"{verb} returned an array on .*CPU_DEVICE.*x0 is on"):
        ksdmin.minimize(p.fun, p.x0, **given)


def test_the_other_precision_is_rounded(backend):
    if backend.name == "jax" and not backend.double:
        pytest.skip("there is no other")
    p = quartic(backend)
    other = backend.xp.float32 if backend.double else backend.xp.float64

    def cast(function):
        return lambda *xs: array_namespace(*xs).astype(function(*xs), other)

    res = ksdmin.minimize(
        p.fun, p.x0, jac=cast(p.jac), hessp=cast(p.hessp), options={"gtol": 1e-4, "krylov_dim": K}
    )
    check(backend, res, p.solution, atol=1e-3)


def test_a_value_is_one_number(backend):
    p = quartic(backend)
    with pytest.raises(ValueError, match=r"must return a scalar value.*shape \(20,\)"):
        ksdmin.minimize(lambda x: x**2, p.x0, jac=p.jac)


# --- What x0 may be ---


def test_integers_become_floats(backend):
    xp = array_namespace(backend.asarray([0.0]))
    x0 = backend.asarray([2, -3], dtype=backend.xp.int32)
    res = ksdmin.minimize(lambda x: x @ x, x0, jac=lambda x: 2 * x)
    widest = xp.float32 if backend.name == "jax" and not backend.double else xp.float64
    assert res.success
    assert res.x.dtype == res.jac.dtype == widest
    assert type(res.x) is type(x0)


def test_a_scalar_is_a_vector_of_one(backend):
    res = ksdmin.minimize(lambda x: (x[0] - 3) ** 2, backend.asarray(1.0), jac=lambda x: 2 * x - 6)
    check(backend, res, np.array([3.0]), atol=1e-4)


def test_shapes_and_dtypes_that_are_refused(backend):
    xp = backend.xp
    with pytest.raises(ValueError, match="one dimension"):
        ksdmin.minimize(lambda x: 0.0, backend.asarray([[1.0, 2.0]]))
    with pytest.raises(ValueError, match="empty"):
        ksdmin.minimize(lambda x: 0.0, backend.asarray([]))
    with pytest.raises(TypeError, match="complex64; expected float32 or float64"):
        ksdmin.minimize(lambda x: 0.0, backend.asarray([1.0, 2.0], dtype=xp.complex64))


def test_a_basis_is_freed_when_its_iteration_is_over(monkeypatch):
    """Not at the next garbage collection: on a device, bases are most of the memory."""
    bases, alive = [], []
    build = krylov.krylov_basis

    def noted(*args, **kwargs):
        alive.append(sum(ref() is not None for ref in bases))
        basis = build(*args, **kwargs)
        bases.append(weakref.ref(basis))
        return basis

    monkeypatch.setattr(krylov, "krylov_basis", noted)
    gc.disable()
    try:
        x0 = np.full(8, 1.5)
        ksdmin.minimize(rosen, x0, jac=rosen_der, hessp=rosen_hess_prod, options={"maxiter": 6})
    finally:
        gc.enable()
    assert max(alive) == 0

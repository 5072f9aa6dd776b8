"""What the tests share: `backend` (an array library, dtype, device) and `losses` (a problem)."""

import os
import signal
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

if "PYTEST_XDIST_WORKER" in os.environ:  # a process per core: more threads would get in the way
    os.environ.setdefault("OMP_NUM_THREADS", "1")
# Jax compiles most of its time; here, and in processes of the tests, it does so lightly
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as shells start what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

import numpy as np
import pytest

from tests.jax_precision import jax_in

BACKENDS = (
    ("numpy-readonly", "float32"),
    ("strict", "float64"),
    ("torch", "float32"),
    pytest.param(("torch-cuda", "float32"), marks=pytest.mark.cuda),
    pytest.param(("torch-cuda", "float64"), marks=pytest.mark.cuda),
    ("jax", "float32"),
)


@dataclass(frozen=True)
class Backend:
    """Makes the arrays of a test, recognises them, and brings them home."""

    name: str
    xp: Any
    dtype: Any
    device: Any = None

    @property
    def double(self):
        return str(self.dtype).endswith("float64")

    def asarray(self, values, dtype=None):
        where = {} if self.device is None else {"device": self.device}
        x = self.xp.asarray(np.array(values), dtype=dtype or self.dtype, **where)
        if self.name == "numpy-readonly":
            x.flags.writeable = False
        return x

    def to_numpy(self, x):
        return np.array(x.detach().cpu().numpy() if hasattr(x, "detach") else x)

    def holds(self, x):
        """Whether `x` is one of our arrays: library, dtype and device."""
        like = self.asarray([0.0])
        alike = type(x) is type(like) and x.dtype == like.dtype
        return alike and getattr(x, "device", None) == getattr(like, "device", None)


@pytest.fixture(params=BACKENDS, ids="-".join)
def backend(request):
    """Every library, CUDA in both dtypes; a missing one is skipped."""
    name, dtype = request.param
    if name.startswith("numpy"):
        yield Backend(name, np, np.dtype(dtype))
    elif name == "strict":
        xp = pytest.importorskip("array_api_strict")
        yield Backend(name, xp, getattr(xp, dtype))
    elif name.startswith("torch"):
        xp = pytest.importorskip("torch")
        yield Backend(name, xp, getattr(xp, dtype), "cuda:0" if name == "torch-cuda" else "cpu")
    else:
        with jax_in(dtype) as jax:
            yield Backend(name, jax.numpy, jax.numpy.dtype(dtype))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """What is marked with `cuda` is skipped where there is no such device."""
    if item.get_closest_marker("cuda") and not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("needs a CUDA device")


@pytest.fixture
def remote():
    """A device whose arrays numpy cannot read, as those of a GPU: a stowaway raises."""
    xp = pytest.importorskip("array_api_strict")
    return Backend("strict", xp, xp.float32, xp.Device("device1"))


@pytest.fixture
def losses():
    """A sum of losses in numpy: strongly convex, not quadratic, with its minimum."""
    rng = np.random.default_rng(0)
    X, x0 = rng.standard_normal((120, 5)) * [1, 1, 2, 3, 5], np.full(5, 2.0)
    y = X @ np.arange(5) + 3 * rng.standard_normal(120)

    def residuals(x, idx):
        return X[idx] @ x - y[idx]

    def fun(x, idx):
        return float(np.mean(residuals(x, idx) ** 2) / 2 + np.sum(x**4) / 4)

    def jac(x, idx):
        r = residuals(x, idx)
        return r @ X[idx] / len(r) + x**3

    def hess(x, idx):
        return X[idx].T @ X[idx] / len(y[idx]) + np.diag(3 * x**2)

    x, whole = x0, slice(None)
    for _ in range(30):
        x = x - np.linalg.solve(hess(x, whole), jac(x, whole))
    given = {"fun": fun, "x0": x0, "jac": jac}  # what `minimize` takes
    hessp = lambda x, p, idx: hess(x, idx) @ p  # noqa: E731
    return SimpleNamespace(
        **given,
        given=given,
        exact={**given, "hessp": hessp},
        n=len(y),
        hess=hess,
        hessp=hessp,
        pair=lambda x, idx: (fun(x, idx), jac(x, idx)),
        whole=whole,
        solution=x,
    )

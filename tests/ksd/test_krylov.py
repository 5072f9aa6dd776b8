"""What Algorithm 2 promises, whatever the matrix: the basis, the model, its size."""

from dataclasses import dataclass, field, replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from numpy.testing import assert_allclose

import ksdmin
from ksdmin._ksd.krylov import Rows, krylov_basis
from ksdmin._ksd.precond import IDENTITY, Preconditioner
from ksdmin._ksd.rules.space import Forcing
from ksdmin._problem.arrays import Space

examples = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],  # a busy machine is no failure
)


def never(growth):
    return False


@dataclass(frozen=True)
class Model:
    """The arguments of Algorithm 2, and how many products it asked for."""

    H: np.ndarray
    g: np.ndarray
    D: np.ndarray | None
    d_prev: list
    K: int
    products: list = field(default_factory=list, init=False)

    def basis(self, enough=never, ahead=False):
        space, product, P = Space(self.g), self.product, Preconditioner.diagonal(self.D)
        return krylov_basis(space, self.g, P, product, self.d_prev, self.K, enough, ahead=ahead)

    def product(self, v):
        self.products.append(v)
        return self.H @ v

    def unscaled(self, u):
        """D^-1 u."""
        return u if self.D is None else u / self.D

    def scaled(self, u):
        """D u."""
        return u if self.D is None else u * self.D


@st.composite
def models(draw, kinds=("definite", "semidefinite", "indefinite"), least_n=1, least_K=1):
    """Matrices of norm 1e-3 to 1e3 with a chosen kind of spectrum; everything else at random."""
    n = draw(st.integers(least_n, 12))
    kind = draw(st.sampled_from(kinds))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    spectrum = rng.uniform(0.1, 1, n)
    if kind == "semidefinite":
        spectrum[: n // 2] = 0
    elif kind == "indefinite":
        spectrum[: (n + 1) // 2] *= -1
    E, _ = np.linalg.qr(rng.standard_normal((n, n)))
    H = E * spectrum @ E.T * 10.0 ** draw(st.integers(-3, 3))
    return Model(
        H=(H + H.T) / 2,
        g=rng.standard_normal(n) * 10.0 ** draw(st.integers(-6, 6)),
        D=10 ** rng.uniform(-1, 1, n) if draw(st.booleans()) else None,
        d_prev=list(rng.standard_normal((draw(st.integers(0, 3)), n))),
        K=draw(st.integers(least_K, 15)),
    )


def outside(basis, u):
    """How much of u lies outside the span, relative to u."""
    Q, _ = np.linalg.qr(basis.V.T)
    return np.linalg.norm(u - Q @ (Q.T @ u)) / np.linalg.norm(u)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@examples
@given(models())
def test_orthonormal_basis_and_the_model_in_it(dtype, model):
    """In the inner product of D; one product for each vector, the previous directions inside."""
    error = 1e-10 if dtype is np.float64 else 1e-3
    arrays = {name: getattr(model, name).astype(dtype) for name in ("H", "g")}
    D = None if model.D is None else model.D.astype(dtype)
    model = replace(model, **arrays, D=D, d_prev=[d.astype(dtype) for d in model.d_prev])
    basis = model.basis()
    assert basis.V.dtype == dtype
    assert basis.H_bar.dtype == basis.g_bar.dtype == np.float64
    assert len(model.products) == basis.dim <= min(model.K + len(model.d_prev), len(model.g))
    assert_allclose(model.products, basis.V, rtol=0, atol=0)
    assert dtype is np.float32 or all(outside(basis, d) < 1e-12 for d in model.d_prev)
    assert basis.asymmetry < error
    V = basis.V.astype(float)
    assert_allclose(V @ model.scaled(V).T, np.eye(basis.dim), rtol=0, atol=error)
    H_bar, g_bar = V @ model.H @ V.T, V @ model.g
    assert_allclose(basis.H_bar, H_bar, rtol=0, atol=error * np.linalg.norm(H_bar))
    assert_allclose(basis.g_bar, g_bar, rtol=0, atol=error * np.linalg.norm(g_bar))
    gram = basis.gram(Space(model.g))
    assert (gram is None) is basis.orthonormal is (model.D is None)
    gram = np.eye(basis.dim) if gram is None else gram
    assert_allclose(gram, V @ V.T, rtol=0, atol=error * np.linalg.norm(gram))


@pytest.mark.parametrize("noise", [0.0, 1e-6, 1e-3])
def test_a_long_basis_stays_orthogonal_without_much_work(noise, monkeypatch):
    """The largest eigenvalues converge early, which is what makes short recurrences go wrong."""
    n, K = 400, 100
    rng = np.random.default_rng(0)
    H = np.geomspace(1e-3, 1e3, n)
    calls, orthogonalise = [], Rows.orthogonalise
    monkeypatch.setattr(
        Rows, "orthogonalise", lambda self, k: calls.append(k) or orthogonalise(self, k)
    )

    def product(v):
        w = H * v
        return w + noise * np.linalg.norm(w) * rng.standard_normal(n) / n**0.5

    g = rng.standard_normal(n)
    basis = krylov_basis(Space(g), g, IDENTITY, product, [], K, never, noise=noise)
    assert basis.dim == K
    assert_allclose(basis.V @ basis.V.T, np.eye(K), rtol=0, atol=1e-10)
    assert noise or 0 < len(calls) < K / 3


# What is dropped


@examples
@given(models(least_n=4))
def test_useless_previous_directions_are_dropped(model):
    model = replace(model, K=2, d_prev=[])
    plain = model.basis()
    inside = plain.V.T @ [3.0, -4.0]
    new = np.random.default_rng(0).standard_normal(len(model.g))
    for d_prev in ([0 * inside], [inside], [model.unscaled(model.g)], [0 * inside, inside]):
        assert_allclose(replace(model, d_prev=d_prev).basis().V, plain.V, rtol=0, atol=0)
    assert replace(model, d_prev=[inside + 1e-16 * new]).basis().dim == 2
    assert replace(model, d_prev=[inside + 1e-11 * new]).basis().dim == 3
    once = replace(model, d_prev=[new]).basis()
    assert once.dim == 3
    for d_prev in ([new, new], [new, -2 * new], [inside, new + inside, new]):
        basis = replace(model, d_prev=d_prev).basis()
        assert basis.dim == 3
        assert_allclose(basis.V, once.V, rtol=0, atol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@examples
@given(models(least_n=6), st.integers(0, 5))
def test_product_that_is_not_finite_ends_it(bad, model, good):
    """What was measured before is kept, and nothing is asked for after."""
    calls = []

    def product(v):
        calls.append(v)
        return model.H @ v if len(calls) <= good else np.r_[bad, v[1:]]

    model = replace(model, K=6, d_prev=[])
    full = model.basis()
    if full.dim <= good:
        return
    space = Space(model.g)
    P = Preconditioner.diagonal(model.D)
    basis = krylov_basis(space, model.g, P, product, [], model.K, never)
    assert not basis.finite
    assert full.finite
    assert (basis.dim, len(calls)) == (good, good + 1)
    assert_allclose(basis.V, full.V[:good], rtol=0, atol=0)
    assert_allclose(basis.H_bar, full.H_bar[:good, :good], rtol=0, atol=0)


@examples
@given(models(kinds=("definite",), least_n=6))
def test_product_of_a_previous_direction_that_is_not_finite(model):
    """The Krylov part is kept."""

    def product(v):
        calls.append(v)
        return model.H @ v if len(calls) <= 2 else np.nan * v

    calls = []
    d_prev = list(np.random.default_rng(0).standard_normal((3, len(model.g))))
    P = Preconditioner.diagonal(model.D)
    basis = krylov_basis(Space(model.g), model.g, P, product, d_prev, 2, never)
    assert (basis.dim, basis.finite) == (2, False)


# What is noticed on the way


@examples
@given(models(least_n=4, least_K=4))
def test_asymmetric_product_is_noticed(model):
    skew = np.random.default_rng(1).standard_normal(model.H.shape)
    skew = 0.1 * np.linalg.norm(model.H) / np.linalg.norm(skew) * (skew - skew.T)
    assert replace(model, H=model.H + skew).basis().asymmetry > 1e-3


@examples
@given(models(kinds=["definite"], least_n=3, least_K=2), st.integers(1, 11))
def test_free_residual_is_the_true_one(model, dim):
    """|g + H d| / |g| of the Newton step in the subspace, in the norm of D^-1."""
    asked = []

    def enough(growth):
        asked.append(growth.residual())
        return growth.dim == dim

    basis = replace(model, d_prev=[]).basis(enough)
    assert len(asked) <= basis.dim <= dim

    def norm(r):
        return (r @ model.unscaled(r)) ** 0.5

    for k, residual in enumerate(asked, start=1):
        V = basis.V[:k]
        d = np.linalg.solve(V @ model.H @ V.T, -V @ model.g) @ V
        expected = norm(model.g + model.H @ d) / norm(model.g)
        assert_allclose(residual, expected, rtol=1e-5, atol=1e-10)


def test_the_space_grows_until_the_newton_step_has_the_residual_asked_for():
    """And no further."""
    rng = np.random.default_rng(0)
    E, _ = np.linalg.qr(rng.standard_normal((30, 30)))
    H, g = E * np.geomspace(1, 100, 30) @ E.T, rng.standard_normal(30)

    def residual(V):
        c = np.linalg.solve(V @ H @ V.T, -V @ g)
        return np.linalg.norm(g + H @ V.T @ c) / np.linalg.norm(g)

    for forcing in (0.5, 0.1, 1e-3):
        enough = Forcing(forcing).satisfied
        basis = krylov_basis(Space(g), g, IDENTITY, lambda v: H @ v, [], 30, enough)
        assert 2 < basis.dim < 30
        assert residual(basis.V) <= forcing
        assert residual(basis.V[:-1]) > forcing


def test_singular_curvature_is_not_enough():
    """Where the Newton step does not exist the space grows on."""
    H = np.diag([0.0, 1.0, 2.0])
    g, enough = np.array([1.0, 0.0, 0.0]), Forcing(0.5).satisfied
    basis = krylov_basis(Space(g), g, IDENTITY, lambda v: H @ v, [np.ones(3)], 3, enough)
    assert basis.dim == 2


# One iteration solves a quadratic


@st.composite
def quadratics(draw):
    """A positive definite matrix of condition 100 at most, and a right-hand side."""
    n = draw(st.integers(1, 15))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    E, _ = np.linalg.qr(rng.standard_normal((n, n)))
    H = E * 10 ** rng.uniform(-1, 1, n) @ E.T
    return (H + H.T) / 2, rng.standard_normal(n)


@pytest.mark.parametrize("of_the_paper", [True, False], ids=["PAPER", "default"])
@examples
@given(quadratics())
def test_a_quadratic_is_solved_soon(of_the_paper, quadratic):
    """At once by the paper's choices; ours solve for no more digits than a step deserves."""
    H, b = quadratic
    options = ksdmin.PAPER | {"krylov_dim": len(b)} if of_the_paper else {}
    res = ksdmin.minimize(
        lambda x: x @ H @ x / 2 - b @ x,
        np.ones(len(b)),
        jac=lambda x: H @ x - b,
        hessp=lambda x, p: H @ p,
        options=options | {"gtol": 1e-10},
    )
    assert res.success
    assert res.nit == 1 or not of_the_paper
    assert res.passes <= 5 * (len(b) + 3)  # n products alone are 2 n passes
    assert_allclose(res.x, np.linalg.solve(H, b), rtol=0, atol=1e-9 if of_the_paper else 1e-8)


@examples
@given(models())
def test_asking_ahead_costs_few_products(model):
    """One where the space ends, and one for a vector of which rounding is left."""
    plain, spent = model.basis(), len(model.products)
    ahead = model.basis(ahead=True)
    assert abs(ahead.dim - plain.dim) <= 1  # rounding decides on the last one
    assert_allclose(ahead.V @ model.scaled(ahead.V).T, np.eye(ahead.dim), rtol=0, atol=1e-7)
    if ahead.dim == plain.dim:
        assert_allclose(ahead.H_bar, plain.H_bar, rtol=0, atol=1e-6 * np.linalg.norm(plain.H_bar))
    assert len(model.products) - spent <= spent + 4

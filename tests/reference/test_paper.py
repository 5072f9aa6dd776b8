"""The package against the paper's printed algorithms, to 1e-10."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit

import ksdmin
from ksdmin._ksd.krylov import krylov_basis
from ksdmin._ksd.precond import Preconditioner
from ksdmin._ksd.presets import floored
from ksdmin._ksd.steps.search import Whitening
from ksdmin._problem.arrays import Space
from tests.reference.paper import Losses, algorithm_3, floor_eigenvalues

M = 240  # samples
WHOLE = slice(None)

definiteness = pytest.mark.parametrize("definite", [True, False], ids=["definite", "indefinite"])
preconditioning = pytest.mark.parametrize("fisher", [True, False], ids=["D", "I"])
dimensions = pytest.mark.parametrize(
    ("n", "K", "inner"), [(8, 3, None), (15, 6, None), (40, 20, None), (8, 20, 3)]
)


def make_losses(n, *, definite, fisher=False):
    """Logistic losses of scaled features, a quadratic and a quartic; where to start.

    One negative curvature is enough: the more there are, and the stronger, the more does a
    search among them magnify rounding errors, in either program.
    """
    rng = np.random.default_rng(n)
    X = rng.standard_normal((M, n)) * np.linspace(0.5, 1.5, n)
    X[:, -1] *= 0.004  # a Fisher diagonal that the floor changes
    bend = np.linspace(0.5, 2, n)
    bend[0] *= 1 if definite else -1

    def value(theta, idx=WHOLE):
        penalty = bend @ theta**2 / 2 + 0.1 * (theta**4).sum()
        return np.logaddexp(0, -X[idx] @ theta).mean() + penalty

    def slopes(theta, idx):  # of each loss
        return -expit(-X[idx] @ theta)[:, None] * X[idx]

    def gradient(theta, idx=WHOLE):
        return slopes(theta, idx).mean(axis=0) + bend * theta + 0.4 * theta**3

    def hessian(theta, idx=WHOLE):
        p = expit(X[idx] @ theta)
        data = X[idx].T * (p * (1 - p)) @ X[idx] / len(p)
        return data + np.diag(bend + 1.2 * theta**2)

    def squares(theta, idx=WHOLE):
        return (slopes(theta, idx) ** 2).mean(axis=0)

    theta = rng.uniform(-0.5, 0.5, n)
    least = np.linalg.eigvalsh(hessian(theta))[0]
    assert least > 0.1 if definite else least < -0.1
    return Losses(value, gradient, hessian, squares if fisher else None), theta


def iterates(losses, theta, K, *, inner=None, **kwargs):
    """The points that the package's PAPER goes through, after the start."""
    options = {"krylov_dim": K, "inner_maxiter": inner, "maxiter": 3, "gtol": 0.0}
    res = ksdmin.minimize(
        losses.value,
        theta,
        jac=losses.gradient,
        hess=losses.hessian,
        precond=losses.fisher,
        options=ksdmin.PAPER | options | {"return_all": True},
        **kwargs,
    )
    return res.allvecs[1:]


def assert_same(found, expected):
    # Our basis is another one of the same space. Rounding differs, and the search makes it grow.
    assert_allclose(found, expected, rtol=0, atol=1e-8)


def assert_same_steps(found, iterations):
    assert_same(found, [iteration.theta for iteration in iterations])


@dimensions
@preconditioning
@definiteness
def test_basis_and_whitening(n, K, inner, fisher, definite):
    losses, theta = make_losses(n, definite=definite, fisher=fisher)
    first, second = algorithm_3(losses, theta, [(WHOLE, WHOLE, WHOLE)] * 2, K, inner=inner)
    theta, d_prev = first.theta, first.theta - theta
    D = np.ones(n)
    if fisher:
        D = losses.fisher(theta)
        D = np.maximum(D, 1e-4 * D.max())
    H = losses.hessian(theta)
    g, d = losses.gradient(theta), [d_prev]
    P = Preconditioner.diagonal(D)
    basis = krylov_basis(Space(theta), g, P, lambda v: H @ v, d, K, lambda growth: False)
    assert basis.dim == min(K + 1, n) == second.V.shape[1]
    # Ours is orthonormal in the inner product of D: the paper's basis is ours after Gram-Schmidt.
    to_ours = np.linalg.cholesky(basis.gram(Space(theta)))
    to_paper = np.linalg.inv(to_ours)
    V, H_bar = to_paper @ basis.V, to_paper @ basis.H_bar @ to_paper.T
    signs = np.sign(np.sum(V.T * second.V, axis=0))
    assert_same(V.T * signs, second.V)
    assert_same(H_bar * np.outer(signs, signs), second.H_bar)

    whitening = Whitening(to_ours @ floored(H_bar, 1e-4) @ to_ours.T)
    V_bar = np.column_stack([basis.V.T @ whitening.coefficients(a) for a in np.eye(basis.dim)])
    assert_same(V_bar @ V_bar.T, second.V_bar @ second.V_bar.T)
    slopes = whitening.gradient(basis.V @ losses.gradient(theta))
    expected = second.V_bar.T @ losses.gradient(theta)
    assert_same(np.linalg.norm(slopes), np.linalg.norm(expected))


@pytest.mark.parametrize(
    "spectrum", [[3, 1, 1e-9], [3, -1, -5], [-1, -2, -3], [0, -2, -3], [0, 0, 0]], ids=str
)
def test_floor(spectrum):
    E, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))
    H_bar = E * spectrum @ E.T
    for epsilon in (1e-4, 0.1):
        assert_same(floored(H_bar, epsilon), floor_eigenvalues(H_bar, epsilon))


@dimensions
@preconditioning
@definiteness
def test_deterministic(n, K, inner, fisher, definite):
    losses, theta = make_losses(n, definite=definite, fisher=fisher)
    expected = list(algorithm_3(losses, theta, [(WHOLE, WHOLE, WHOLE)] * 3, K, inner=inner))
    if not definite:  # the floor had something to do
        assert np.linalg.eigvalsh(expected[0].H_bar)[0] < 0
    assert_same_steps(iterates(losses, theta, K, inner=inner), expected)


@definiteness
@pytest.mark.parametrize("active", [slice(0, 4), slice(6, 10)], ids=["e_1 inside", "e_1 outside"])
def test_exhausted_space(active, definite):
    """Gradient and Hessian keep to four co-ordinates: the Krylov space has no more dimensions."""
    rng = np.random.default_rng(1)
    inside = np.zeros(10)
    inside[active] = 1
    Q = rng.standard_normal((10, 10))
    Q = (Q + Q.T) * (inside[:, None] == inside) / 4 + (3 if definite else 0) * np.eye(10)
    b = rng.standard_normal(10) * inside
    losses = Losses(
        lambda x, idx=WHOLE: x @ Q @ x / 2 + b @ x + 0.1 * (x**4).sum(),
        lambda x, idx=WHOLE: Q @ x + b + 0.4 * x**3,
        lambda x, idx=WHOLE: Q + np.diag(1.2 * x**2),
    )
    theta = rng.standard_normal(10) * inside
    expected = list(algorithm_3(losses, theta, [(WHOLE, WHOLE, WHOLE)] * 3, K=8))
    assert [iteration.V.shape[1] for iteration in expected] == [4 + (active.start > 0), 4, 4]
    assert_same_steps(iterates(losses, theta, K=8), expected)


@pytest.mark.parametrize(("n", "K"), [(8, 3), (15, 6), (40, 20)])
@pytest.mark.parametrize("share", [1.0, 0.5], ids=["A whole", "A half"])
@preconditioning
@definiteness
def test_own_subsets(n, K, share, fisher, definite):
    """B and C disjoint, 1/K of the samples each; both sides are handed the same sets."""
    losses, theta = make_losses(n, definite=definite, fisher=fisher)
    subsets = ksdmin.Subsets(M, gradient=share)
    sizes = subsets.sizes(K)

    def sample(iteration, rng=None):
        sets = subsets.draw(iteration, np.random.default_rng(iteration), sizes)
        return sets.A, sets.B, sets.C

    for _, B, C in map(sample, range(3)):
        assert len(B) == len(C) == M // K
        assert not set(B) & set(C)
    expected = list(algorithm_3(losses, theta, map(sample, range(3)), K))
    assert_same_steps(iterates(losses, theta, K, subsets=sample), expected)


@definiteness
def test_drawn_subsets(definite):
    """The sets that the package draws, overheard and replayed."""
    n, K = 12, 5
    losses, theta = make_losses(n, definite=definite, fisher=True)
    heard = {"hessian": [], "value": []}

    def overheard(verb):
        def function(x, idx):
            if not any(idx is known for known in heard[verb]):
                heard[verb].append(idx)
            return getattr(losses, verb)(x, idx)

        return function

    spy = Losses(overheard("value"), losses.gradient, overheard("hessian"), losses.fisher)
    found = iterates(spy, theta, K, subsets=M, rng=7)
    A, *C = heard["value"]
    assert A == WHOLE
    sets = [(A, *BC) for BC in zip(heard["hessian"], C, strict=True)]
    assert len(sets) == 3
    for _, B, C in sets:
        assert len(B) == len(C) == M // K
        assert not set(B) & set(C)
    assert_same_steps(found, list(algorithm_3(losses, theta, sets, K)))

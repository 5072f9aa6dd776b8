"""Classic smooth unconstrained test problems with exact first and second derivatives.

``SMALL`` holds the 35 problems of More, Garbow and Hillstrom (ACM TOMS 7, 1981, 17-41), in their
order; ``LARGE`` holds scalable problems, mostly from the CUTE collection and from Luksan, Matonoha
and Vlcek (Technical Report 1081).  ``PROBLEMS`` is their union: a name -> constructor dictionary.

    problem = PROBLEMS["genrose"](n=200)
    problem.fun(problem.x0), problem.grad(problem.x0), problem.hessp(problem.x0, p)

Every objective is written once, as a sum of elements ``phi(x[idx[0]], x[idx[1]], ...)`` of a few
variables each, vectorised over the elements.  Called with arrays, ``phi`` gives the value; called
with jets it also gives the exact element gradients and Hessians, which are then assembled.
"""

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.special import expit

DENSE = 100  # up to this many variables Hessians are dense arrays, above they are CSR arrays


@dataclass(frozen=True)
class Problem:
    """An objective with its derivatives, standard start and best known value (None: unknown)."""

    fun: Callable
    grad: Callable
    hess: Callable
    x0: np.ndarray
    fmin: float | None = None
    name: str = ""
    _cache: dict = field(default_factory=dict, repr=False, compare=False)

    @property
    def n(self):
        return self.x0.size

    def hessp(self, x, p):
        """Hessian-vector product; the Hessian at the latest ``x`` is kept."""
        key = np.asarray(x).tobytes()
        if key not in self._cache:
            self._cache.clear()
            self._cache[key] = self.hess(x)
        return self._cache[key] @ p


# --- Exact derivatives: second-order forward mode, vectorised ---


class Jet(np.lib.mixins.NDArrayOperatorsMixin):
    """Values v (m), gradients g (k, m) and Hessians h (k, k, m) in k variables of m elements.

    A first-order jet has an empty h of shape (0, 0, m), which then costs nothing to carry along.
    """

    def __init__(self, v, g, h):
        self.v, self.g, self.h = v, g, h

    @classmethod
    def variables(cls, x, order):
        """The k rows of x as independent variables."""
        k = len(x)
        h = np.zeros((k, k, 1) if order == 2 else (0, 0, 1))
        return [cls(v, e[:, None], h) for v, e in zip(x, np.eye(k), strict=True)]

    def chain(self, f, df, d2f):
        """A univariate function of this jet, given its value and derivatives."""
        return Jet(f, df * self.g, df * self.h + d2f * self.outer(self))

    def outer(self, other):
        r = len(self.h)
        return self.g[:r, None] * other.g[None, :r]

    def sum(self, axis=-1, keepdims=True):
        """Sum over the elements, as one element."""
        g, h = (np.broadcast_to(d, d.shape[:-1] + self.v.shape) for d in (self.g, self.h))
        return Jet(*(d.sum(axis, keepdims=keepdims) for d in (self.v, g, h)))

    def __array_ufunc__(self, ufunc, method, *args, **kwargs):
        if ufunc in UNARY:
            return self.chain(*UNARY[ufunc](self.v))
        if ufunc in BINARY:
            return BINARY[ufunc](*args)
        return ufunc(*(getattr(a, "v", a) for a in args))  # comparisons


def _add(a, b):
    if not isinstance(a, Jet):
        a, b = b, a
    if not isinstance(b, Jet):
        return Jet(a.v + b, a.g, a.h)
    return Jet(a.v + b.v, a.g + b.g, a.h + b.h)


def _multiply(a, b):
    if not isinstance(a, Jet):
        a, b = b, a
    if not isinstance(b, Jet):
        return Jet(a.v * b, a.g * b, a.h * b)
    h = a.v * b.h + b.v * a.h + a.outer(b) + b.outer(a)
    return Jet(a.v * b.v, a.v * b.g + b.v * a.g, h)


def _power(a, p):
    if isinstance(p, Jet):
        return np.exp(p * np.log(a))
    return a.chain(a.v**p, p * a.v ** (p - 1), p * (p - 1) * a.v ** (p - 2))


BINARY = {
    np.add: _add,
    np.subtract: lambda a, b: _add(a, -1.0 * b),
    np.multiply: _multiply,
    np.divide: lambda a, b: _multiply(a, b**-1.0),
    np.power: _power,
}

UNARY = {  # u -> f(u), f'(u), f''(u)
    np.negative: lambda u: (-u, -1.0, 0.0),
    np.exp: lambda u: (np.exp(u),) * 3,
    np.log: lambda u: (np.log(u), 1 / u, -1 / u**2),
    np.sqrt: lambda u: (np.sqrt(u), 0.5 / np.sqrt(u), -0.25 / u**1.5),
    np.sin: lambda u: (np.sin(u), np.cos(u), -np.sin(u)),
    np.cos: lambda u: (np.cos(u), -np.sin(u), -np.cos(u)),
    np.tan: lambda u: (np.tan(u), 1 + np.tan(u) ** 2, 2 * np.tan(u) * (1 + np.tan(u) ** 2)),
    np.arctan: lambda u: (np.arctan(u), 1 / (1 + u**2), -2 * u / (1 + u**2) ** 2),
}


# --- Builders ---


def separable(x0, fmin, *groups, constant=0.0):
    """Partially separable problem: the sum of ``phi(*x[idx])`` over groups ``(phi, idx)``.

    idx has shape (k, m): column j lists the k variables of element j.
    """
    x0 = np.array(x0, dtype=float)
    n = x0.size

    def fun(x):
        with np.errstate(all="ignore"):
            return float(sum(np.sum(phi(*x[idx])) for phi, idx in groups)) + constant

    def grad(x):
        g = np.zeros(n)
        with np.errstate(all="ignore"):
            for phi, idx in groups:
                jet = phi(*Jet.variables(x[idx], order=1))
                g += np.bincount(idx.ravel(), np.broadcast_to(jet.g, idx.shape).ravel(), n)
        return g

    def hess(x):
        total = csr_array((n, n))
        with np.errstate(all="ignore"):
            for phi, idx in groups:
                jet = phi(*Jet.variables(x[idx], order=2))
                h, i, j = (a.ravel() for a in np.broadcast_arrays(jet.h, idx[:, None], idx[None]))
                total = total + coo_array((h, (i, j)), shape=(n, n)).tocsr()
        return total.toarray() if n <= DENSE else total

    return Problem(fun, grad, hess, x0, fmin)


def least_squares(x0, fmin, residuals):
    """Sum of squares of residuals of all variables: scalars and vectors, in any iterable."""

    def phi(*x):
        return sum((r * r).sum(-1, keepdims=True) for r in residuals(*x))

    return separable(x0, fmin, (phi, dense(len(x0))))


def dense(n):
    """Index of a single element in all n variables."""
    return np.arange(n)[:, None]


def window(n, k, step=1):
    """Index of the elements (x[i], ..., x[i + k - 1]) for i = 0, step, 2 step, ..."""
    return np.arange(0, n - k + 1, step) + np.arange(k)[:, None]


def stack(*rows):
    """Index with the given rows, scalars standing for a variable that all elements share."""
    return np.array(np.broadcast_arrays(*rows))


def band(n, below, above):
    """Index of (x[i - below], ..., x[i + above]) for all i, and weights: 0 where out of range."""
    idx = np.arange(n) + np.arange(-below, above + 1)[:, None]
    return idx.clip(0, n - 1), ((idx >= 0) & (idx < n)).astype(float)


SMALL: dict[str, Callable[..., Problem]] = {}
LARGE: dict[str, Callable[..., Problem]] = {}


def register(collection, make, name=None, **defaults):
    """Add a constructor, under another name and with other defaults if given."""
    name = name or make.__name__
    collection[name] = lambda **kwargs: replace(make(**(defaults | kwargs)), name=name)
    return make


small = functools.partial(register, SMALL)
large = functools.partial(register, LARGE)


def fixed(x0, fmin):
    """Register the least-squares problem whose residuals the decorated function gives."""

    def decorator(residuals):
        small(lambda: least_squares(x0, fmin, residuals), residuals.__name__)
        return residuals

    return decorator


# --- More, Garbow and Hillstrom ---


@fixed([-1.2, 1], 0.0)
def rosenbrock(x1, x2):
    return 10 * (x2 - x1**2), 1 - x1


@fixed([0.5, -2], 0.0)
def freudenstein_roth(x1, x2):
    return x1 - 13 + ((5 - x2) * x2 - 2) * x2, x1 - 29 + ((x2 + 1) * x2 - 14) * x2


@fixed([0, 1], 0.0)
def powell_badly_scaled(x1, x2):
    return 1e4 * x1 * x2 - 1, np.exp(-x1) + np.exp(-x2) - 1.0001


@fixed([1, 1], 0.0)
def brown_badly_scaled(x1, x2):
    return x1 - 1e6, x2 - 2e-6, x1 * x2 - 2


@fixed([1, 1], 0.0)
def beale(x1, x2):
    return 1.5 - x1 * (1 - x2), 2.25 - x1 * (1 - x2**2), 2.625 - x1 * (1 - x2**3)


@fixed([0.3, 0.4], 124.362182355615)
def jennrich_sampson(x1, x2):
    i = np.arange(1, 11)
    return [2 + 2 * i - np.exp(i * x1) - np.exp(i * x2)]


@fixed([-1, 0, 0], 0.0)
def helical_valley(x1, x2, x3):
    theta = np.arctan(x2 / x1) / (2 * np.pi) + 0.5 * (x1 < 0)
    return 10 * (x3 - 10 * theta), 10 * (np.sqrt(x1**2 + x2**2) - 1), x3


@fixed([1, 1, 1], 8.21487730657897e-3)
def bard(x1, x2, x3):
    y = np.array([14, 18, 22, 25, 29, 32, 35, 39, 37, 58, 73, 96, 134, 210, 439]) / 100
    u = np.arange(1, 16)
    return [y - x1 - u / ((16 - u) * x2 + np.minimum(u, 16 - u) * x3)]


@fixed([0.4, 1, 0], 1.12793276961872e-8)
def gaussian(x1, x2, x3):
    y = np.array([9, 44, 175, 540, 1295, 2420, 3521, 3989]) / 1e4
    t = np.arange(7, -8, -1) / 2
    return [x1 * np.exp(-x2 * (t - x3) ** 2 / 2) - np.append(y, y[-2::-1])]


@fixed([0.02, 4000, 250], 87.94585517)
def meyer(x1, x2, x3):
    y = np.array([34780, 28610, 23650, 19630, 16370, 13720, 11540, 9744,
                  8261, 7030, 6005, 5147, 4427, 3820, 3307, 2872])  # fmt: skip
    t = 45 + 5 * np.arange(1, 17)
    return [x1 * np.exp(x2 / (t + x3)) - y]


@fixed([5, 2.5, 0.15], 0.0)
def gulf(x1, x2, x3):
    t = np.arange(1, 100) / 100
    y = 25 + (-50 * np.log(t)) ** (2 / 3)
    power = np.exp(x3 * np.log((y - x2) ** 2) / 2)  # |y - x2| ** x3
    return [np.exp(-power / x1) - t]


@fixed([0, 10, 20], 0.0)
def box3d(x1, x2, x3):
    t = np.arange(1, 11) / 10
    return [np.exp(-t * x1) - np.exp(-t * x2) - x3 * (np.exp(-t) - np.exp(-10 * t))]


@fixed([3, -1, 0, 1], 0.0)
def powell_singular(x1, x2, x3, x4):
    return x1 + 10 * x2, 5**0.5 * (x3 - x4), (x2 - 2 * x3) ** 2, 10**0.5 * (x1 - x4) ** 2


@fixed([-3, -1, -3, -1], 0.0)
def wood(x1, x2, x3, x4):
    yield from (10 * (x2 - x1**2), 1 - x1, 90**0.5 * (x4 - x3**2), 1 - x3)
    yield from (10**0.5 * (x2 + x4 - 2), 0.1**0.5 * (x2 - x4))


@fixed([0.25, 0.39, 0.415, 0.39], 3.07505603849236e-4)
def kowalik_osborne(x1, x2, x3, x4):
    y = np.array([1957, 1947, 1735, 1600, 844, 627, 456, 342, 323, 235, 246]) / 1e4
    u = np.array([4, 2, 1, 0.5, 0.25, 0.167, 0.125, 0.1, 0.0833, 0.0714, 0.0625])
    return [y - x1 * (u**2 + u * x2) / (u**2 + u * x3 + x4)]


@fixed([25, 5, -5, -1], 85822.2016263563)
def brown_dennis(x1, x2, x3, x4):
    t = np.arange(1, 21) / 5
    return [(x1 + t * x2 - np.exp(t)) ** 2 + (x3 + x4 * np.sin(t) - np.cos(t)) ** 2]


@fixed([0.5, 1.5, -1, 0.01, 0.02], 5.46489469748e-5)
def osborne1(x1, x2, x3, x4, x5):
    y = np.array([844, 908, 932, 936, 925, 908, 881, 850, 818, 784, 751,
                  718, 685, 658, 628, 603, 580, 558, 538, 522, 506, 490,
                  478, 467, 457, 448, 438, 431, 424, 420, 414, 411, 406]) / 1e3  # fmt: skip
    t = 10 * np.arange(33)
    return [y - x1 - x2 * np.exp(-t * x4) - x3 * np.exp(-t * x5)]


@fixed([1, 2, 1, 1, 1, 1], 0.0)
def biggs_exp6(x1, x2, x3, x4, x5, x6):
    t = np.arange(1, 14) / 10
    y = np.exp(-t) - 5 * np.exp(-10 * t) + 3 * np.exp(-4 * t)
    return [x3 * np.exp(-t * x1) - x4 * np.exp(-t * x2) + x6 * np.exp(-t * x5) - y]


@fixed([1.3, 0.65, 0.65, 0.7, 0.6, 3, 5, 7, 2, 4.5, 5.5], 4.01377362935477e-2)
def osborne2(*x):
    y = np.array([1366, 1191, 1112, 1013, 991, 885, 831, 847, 786, 725, 746, 679, 608,
                  655, 616, 606, 602, 626, 651, 724, 649, 649, 694, 644, 624, 661,
                  612, 558, 533, 495, 500, 423, 395, 375, 372, 391, 396, 405, 428,
                  429, 523, 562, 607, 653, 672, 708, 633, 668, 645, 632, 591, 559,
                  597, 625, 739, 710, 729, 720, 636, 581, 428, 292, 162, 98, 54]) / 1e3  # fmt: skip
    t = np.arange(65) / 10
    bumps = (x[j] * np.exp(-((t - x[j + 7]) ** 2) * x[j + 4]) for j in (1, 2, 3))
    return [y - x[0] * np.exp(-t * x[4]) - sum(bumps)]


@small
def watson(n=9):
    t = np.arange(1, 30) / 29

    def residuals(*x):
        slope = sum(j * x[j] * t ** (j - 1) for j in range(1, n))
        value = sum(x[j] * t**j for j in range(n))
        return slope - value**2 - 1, x[0], x[1] - x[0] ** 2 - 1

    fmin = {6: 2.28767005355e-3, 9: 1.39976013809e-6}.get(n)
    return least_squares(np.zeros(n), fmin, residuals)


def sum_of_squares(residuals):
    """The element function of a fixed problem, to be repeated in a larger one."""
    return lambda *x: sum(r**2 for r in residuals(*x))


@small
def extended_rosenbrock(n=10):
    x0 = np.tile([-1.2, 1], n // 2)
    return separable(x0, 0.0, (sum_of_squares(rosenbrock), window(n, 2, 2)))


@small
def extended_powell(n=12):
    x0 = np.tile([3, -1, 0, 1], n // 4)
    return separable(x0, 0.0, (sum_of_squares(powell_singular), window(n, 4, 4)))


@small
def penalty1(n=10):
    def phi(*x):
        return (sum(v**2 for v in x) - 0.25) ** 2

    fmin = {10: 7.08765146709e-5, 100: 9.02490976804e-4}.get(n)
    return separable(
        np.arange(1, n + 1), fmin, (lambda x: 1e-5 * (x - 1) ** 2, window(n, 1)), (phi, dense(n))
    )


@small
def penalty2(n=10):
    y = np.exp(np.arange(2, n + 1) / 10) + np.exp(np.arange(1, n) / 10)
    return separable(
        np.full(n, 0.5),
        {10: 2.93660537456e-4}.get(n),
        (lambda x: (x - 0.2) ** 2, dense(1)),
        (lambda u, v: 1e-5 * (np.exp(u / 10) + np.exp(v / 10) - y) ** 2, window(n, 2)),
        (lambda v: 1e-5 * (np.exp(v / 10) - np.exp(-0.1)) ** 2, 1 + window(n - 1, 1)),
        (lambda *x: (sum((n - j) * v**2 for j, v in enumerate(x)) - 1) ** 2, dense(n)),
    )


@small
def variably_dimensioned(n=10):
    def phi(*x):
        s = sum(j * (v - 1) for j, v in enumerate(x, 1))
        return s**2 + s**4

    x0 = 1 - np.arange(1, n + 1) / n
    return separable(x0, 0.0, (lambda x: (x - 1) ** 2, window(n, 1)), (phi, dense(n)))


@small
def trigonometric(n=10):
    def residuals(*x):
        c = [np.cos(v) for v in x]
        s = n - sum(c)
        return [s + i * (1 - c[i - 1]) - np.sin(x[i - 1]) for i in range(1, n + 1)]

    return least_squares(np.full(n, 1 / n), 0.0, residuals)


@small
def brown_almost_linear(n=10):
    def residuals(*x):
        s = sum(x) - (n + 1)
        return [*(v + s for v in x[:-1]), math.prod(x) - 1]

    return least_squares(np.full(n, 0.5), 0.0, residuals)


@small
def discrete_boundary_value(n=10):
    t = np.arange(1, n + 1) / (n + 1)
    idx, w = band(n, 1, 1)

    def phi(a, b, c):
        return (2 * b - w[0] * a - w[2] * c + (b + t + 1) ** 3 / (2 * (n + 1) ** 2)) ** 2

    return separable(t * (t - 1), 0.0, (phi, idx))


@small
def discrete_integral_equation(n=10):
    t = np.arange(1, n + 1) / (n + 1)
    kernel = np.minimum.outer(t, t) * (1 - np.maximum.outer(t, t)) / (2 * (n + 1))

    def residuals(*x):
        cubes = [(v + s + 1) ** 3 for v, s in zip(x, t, strict=True)]
        return [v + sum(map(operator.mul, row, cubes)) for v, row in zip(x, kernel, strict=True)]

    return least_squares(t * (t - 1), 0.0, residuals)


@small
def broyden_tridiagonal(n=10):
    idx, w = band(n, 1, 1)

    def phi(a, b, c):
        return ((3 - 2 * b) * b - w[0] * a - 2 * w[2] * c + 1) ** 2

    return separable(-np.ones(n), 0.0, (phi, idx))


@small
def broyden_banded(n=10):
    idx, w = band(n, 5, 1)

    def phi(*x):
        others = sum(w[j] * x[j] * (1 + x[j]) for j in (0, 1, 2, 3, 4, 6))
        return (x[5] * (2 + 5 * x[5] ** 2) + 1 - others) ** 2

    return separable(-np.ones(n), 0.0, (phi, idx))


@small
def linear_full_rank(n=10, m=20):
    def residuals(*x):
        s = 2 / m * sum(x) + 1
        return [v - s for v in x] + [-s] * (m - n)

    return least_squares(np.ones(n), float(m - n), residuals)


@small
def linear_rank1(n=10, m=20):
    def residuals(*x):
        return [np.arange(1, m + 1) * sum(j * v for j, v in enumerate(x, 1)) - 1]

    return least_squares(np.ones(n), m * (m - 1) / (4 * m + 2), residuals)


@small
def linear_rank1_zeros(n=10, m=20):
    def residuals(*x):
        return [np.r_[0, 1 : m - 1, 0] * sum(j * x[j - 1] for j in range(2, n)) - 1]

    return least_squares(np.ones(n), (m**2 + 3 * m - 6) / (4 * m - 6), residuals)


@small
def chebyquad(n=8):
    def residuals(*x):
        y = [2 * v - 1 for v in x]
        previous, current = [1.0] * n, y
        for i in range(1, n + 1):
            yield sum(current) / n + (1 / (i**2 - 1) if i % 2 == 0 else 0)
            following = [2 * a * b - c for a, b, c in zip(y, current, previous, strict=True)]
            previous, current = current, following

    fmin = {8: 3.51687372567792e-3, 9: 0.0}.get(n)
    return least_squares(np.arange(1, n + 1) / (n + 1), fmin, residuals)


# --- Larger problems ---

large(extended_rosenbrock, "srosenbr", n=1000)
large(extended_powell, "powellsg", n=1000)
large(discrete_boundary_value, "morebv", n=100)
large(broyden_tridiagonal, "broydn3d", n=1000)
large(broyden_banded, "brybnd", n=1000)
large(penalty1, "penalty", n=100)
large(variably_dimensioned, "vardim", n=100)


@large
def chained_rosenbrock(n=100):
    x0 = np.resize([-1.2, 1], n)
    return separable(x0, 0.0, (sum_of_squares(rosenbrock), window(n, 2)))


@large
def genrose(n=100):
    def phi(x, y):
        return 100 * (y - x**2) ** 2 + (1 - y) ** 2

    x0 = np.arange(1, n + 1) / (n + 1)
    return separable(x0, 1.0, (phi, window(n, 2)), constant=1.0)


@large
def woods(n=1000):
    x0 = np.tile([-3, -1, -3, -1], n // 4)
    return separable(x0, 0.0, (sum_of_squares(wood), window(n, 4, 4)))


@large
def chainwoo(n=100):
    x0 = np.r_[-3, -1, -3, -1, np.full(n - 4, -2)]
    return separable(x0, 1.0, (sum_of_squares(wood), window(n, 4, 2)), constant=1.0)


@large
def arwhead(n=1000):
    def phi(x, z):
        return (x**2 + z**2) ** 2 - 4 * x + 3

    return separable(np.ones(n), 0.0, (phi, stack(np.arange(n - 1), n - 1)))


@large
def bdqrtic(n=100):
    def phi(a, b, c, d, z):
        return (3 - 4 * a) ** 2 + (a**2 + 2 * b**2 + 3 * c**2 + 4 * d**2 + 5 * z**2) ** 2

    fmin = {100: 378.769191808683, 5000: 20006.2568784336}.get(n)
    return separable(np.ones(n), fmin, (phi, stack(*window(n - 1, 4), n - 1)))


@large
def cragglvy(n=1000):
    def phi(a, b, c, d):
        u = (np.exp(a) - b) ** 4 + 100 * (b - c) ** 6
        return u + (np.tan(c - d) + c - d) ** 4 + a**8 + (d - 1) ** 2

    fmin = {1000: 336.423147872921, 5000: 1688.21530971443}.get(n)
    return separable(np.r_[1, np.full(n - 1, 2)], fmin, (phi, window(n, 4, 2)))


def dixmaan(n=300, beta=0.125, gamma=0.125, delta=0.125, k=(0, 0, 0, 0)):
    m = n // 3
    i = np.arange(n)
    s = [((i + 1) / n) ** power for power in k]
    return separable(
        np.full(n, 2),
        1.0,
        (lambda x: s[0] * x**2, window(n, 1)),
        (lambda x, y: beta * s[1][:-1] * (x * (y + y**2)) ** 2, window(n, 2)),
        (lambda x, y: gamma * s[2][: 2 * m] * (x * y**2) ** 2, stack(i[: 2 * m], i[m:])),
        (lambda x, y: delta * s[3][:m] * x * y, stack(i[:m], i[2 * m :])),
        constant=1.0,
    )


large(dixmaan, "dixmaanc")
large(dixmaan, "dixmaanh", beta=0.26, gamma=0.26, delta=0.26, k=(1, 0, 0, 1))
large(dixmaan, "dixmaani", beta=0.0, k=(2, 0, 0, 2))
large(dixmaan, "dixmaanp", beta=0.26, gamma=0.26, delta=0.26, k=(2, 1, 1, 2))


@large
def dqrtic(n=100):
    i = np.arange(1, n + 1)
    return separable(np.full(n, 2), 0.0, (lambda x: (x - i) ** 4, window(n, 1)))


@large
def edensch(n=1000):
    def phi(x, y):
        return (x - 2) ** 4 + (x * y - 2 * y) ** 2 + (y + 1) ** 2

    fmin = {1000: 6003.28459202076, 2000: 12003.28459202077}.get(n)
    return separable(np.zeros(n), fmin, (phi, window(n, 2)), constant=16.0)


@large
def engval1(n=1000):
    def phi(x, y):
        return (x**2 + y**2) ** 2 - 4 * x + 3

    fmin = {1000: 1108.19471878501, 5000: 5548.66841941577}.get(n)
    return separable(np.full(n, 2), fmin, (phi, window(n, 2)))


@large
def fletchcr(n=100):
    return separable(np.zeros(n), 0.0, (lambda x, y: 100 * (y - x + 1 - x**2) ** 2, window(n, 2)))


@large
def freuroth(n=1000):
    x0 = np.r_[0.5, -2, np.zeros(n - 2)]
    fmin = {1000: 121469.710109452, 5000: 608159.189046329}.get(n)
    return separable(x0, fmin, (sum_of_squares(freudenstein_roth), window(n, 2)))


@large
def liarwhd(n=1000):
    def phi(x, z):
        return 4 * (x**2 - z) ** 2 + (x - 1) ** 2

    return separable(np.full(n, 4), 0.0, (phi, stack(np.arange(n), 0)))


@large
def nondia(n=1000):
    def phi(x, z):
        return 100 * (z - x**2) ** 2

    idx = stack(np.arange(1, n), 0)
    return separable(-np.ones(n), 0.0, (lambda x: (x - 1) ** 2, dense(1)), (phi, idx))


@large
def nondquar(n=100):
    return separable(
        np.resize([1, -1], n),
        0.0,
        (lambda x, y: (x - y) ** 2, stack([0, n - 2], [1, n - 1])),
        (lambda x, y, z: (x + y + z) ** 4, stack(*window(n - 1, 2), n - 1)),
    )


@large
def power(n=100):
    def phi(*x):
        return sum(j * v**2 for j, v in enumerate(x, 1)) ** 2

    return separable(np.ones(n), 0.0, (phi, dense(n)))


@large
def schmvett(n=1000):
    def phi(x, y, z):
        u = 1 / (1 + (x - y) ** 2) + np.sin((np.pi * y + z) / 2)
        return -u - np.exp(-(((x + z) / y - 2) ** 2))

    return separable(np.full(n, 0.5), -3.0 * (n - 2), (phi, window(n, 3)))


@large
def sinquad(n=100):
    def phi(a, x, z):
        return (np.sin(x - z) - a**2 + x**2) ** 2

    return separable(
        np.full(n, 0.1),
        0.0,
        (lambda x: (x - 1) ** 4, dense(1)),
        (lambda x, z: (z**2 - x**2) ** 2, stack([0], [n - 1])),
        (phi, stack(0, np.arange(1, n - 1), n - 1)),
    )


@large
def sparsine(n=100):
    i = np.arange(1, n + 1)

    def phi(*x):
        return i / 2 * sum(np.sin(v) for v in x) ** 2

    idx = (i * np.array([1, 2, 3, 5, 7, 11])[:, None] - 1) % n
    return separable(np.full(n, 0.5), 0.0, (phi, idx))


@large
def tointgss(n=1000):
    def phi(x, y, z):
        return (10 / (n + 2) + z**2) * (2 - np.exp(-((x - y) ** 2) / (0.1 + z**2)))

    return separable(np.full(n, 3), 10 * (n - 2) / (n + 2), (phi, window(n, 3)))


@large
def tridia(n=1000):
    def phi(x, y):
        return np.arange(2, n + 1) * (2 * y - x) ** 2

    return separable(np.ones(n), 0.0, (lambda x: (x - 1) ** 2, dense(1)), (phi, window(n, 2)))


@large
def vareigvl(n=50):
    m = n - 1  # the last variable is the eigenvalue
    idx, w = band(m, 4, 4)
    i, j = np.arange(1, n), idx + 1
    a = w * np.sin(i * j) * np.exp(-(((i - j) / m) ** 2))

    def phi(*x):
        return (sum(map(operator.mul, a, x)) - x[9] * x[4]) ** 2 / 2

    def norm(*x):
        return sum(v**2 for v in x) ** 1.5 / 1.5

    return separable(np.ones(n), 0.0, (phi, stack(*idx, m)), (norm, dense(m)))


@large
def curly10(n=100):
    idx, w = band(n, 0, 10)

    def phi(*x):
        q = sum(map(operator.mul, w, x))
        return q * (q * (q**2 - 20) - 0.1)

    return separable(1e-4 * np.arange(1, n + 1) / (n + 1), -100.3162902413311 * n, (phi, idx))


@large
def noncvxu2(n=100):
    i = np.arange(1, n + 1)

    def phi(x, y, z):
        return (x + y + z) ** 2 + 4 * np.cos(x + y + z)

    return separable(i, 2.31680841978821 * n, (phi, stack(i - 1, (3 * i - 2) % n, (7 * i - 3) % n)))


@large
def cosine(n=1000):
    return separable(np.ones(n), 1.0 - n, (lambda x, y: np.cos(x**2 - y / 2), window(n, 2)))


@large
def ginzburg_landau(n=200):
    """Ring of double wells with nearest-neighbour coupling, from near its central maximum."""
    i = np.arange(n)
    return separable(
        0.01 * np.sin(i),
        0.0,
        (lambda x: (x**2 - 1) ** 2 / 4, window(n, 1)),
        (lambda x, y: 5 * (x - y) ** 2, stack(i, (i + 1) % n)),
    )


@large
def ill_conditioned_quadratic(n=100, condition=1e6):
    """Convex quadratic, its eigenvalues logarithmically spaced and its eigenvectors rotated."""
    v = np.sin(np.arange(1, n + 1))
    q = np.eye(n) - 2 * np.outer(v, v) / (v @ v)
    a = q * np.geomspace(1, condition, n) @ q
    a = (a + a.T) / 2
    return Problem(
        fun=lambda x: float((x - 1) @ a @ (x - 1) / 2),
        grad=lambda x: a @ (x - 1),
        hess=lambda x: a.copy(),
        x0=np.zeros(n),
        fmin=0.0,
    )


@large
def logistic(n=50, m=500, ridge=1e-3):
    """Ridge-regularised logistic regression on generated data with badly scaled features."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((m, n)) * np.geomspace(0.1, 10, n)
    a *= np.where(a @ rng.standard_normal(n) + 20 * rng.standard_normal(m) > 0, 1, -1)[:, None]

    def hess(x):
        p = expit(a @ x)
        return a.T * (p * (1 - p) / m) @ a + ridge * np.eye(n)

    return Problem(
        fun=lambda x: float(np.logaddexp(0, -a @ x).mean() + ridge / 2 * x @ x),
        grad=lambda x: ridge * x - a.T @ expit(-a @ x) / m,
        hess=hess,
        x0=np.zeros(n),
        fmin={(50, 500, 1e-3): 0.444193614551243}.get((n, m, ridge)),
    )


PROBLEMS = SMALL | LARGE


def all_problems(size=None):
    """All problems in their default dimensions; size "small" or "large" selects a collection."""
    collection = {None: PROBLEMS, "small": SMALL, "large": LARGE}[size]
    return [build() for build in collection.values()]

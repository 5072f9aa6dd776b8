"""Derivatives of a case as dense matrices: plain autograd and loops."""

from functools import cache, cached_property

import torch
from torch import nn
from torch.autograd.functional import hessian, jacobian
from torch.nn.attention import SDPBackend, sdpa_kernel

import ksdmin
from ksdmin._adapters.flat_problem import seed_for_set
from tests.adapters.torch.zoo import ZOO
from tests.zoo.registry import pieces

WHOLE = slice(None)
SETS = {"whole": WHOLE, "set": torch.tensor([1, 2, 5, 6])}


class Dense:
    """All there is to know of a case at `x` on the samples `idx`.

    `seed` is that of dropout, whose masks are drawn for `chunk` samples at a time.
    """

    def __init__(self, case, x, idx=WHOLE, seed=0, chunk=100):
        inputs, targets = case.data
        several = inputs if isinstance(inputs, tuple) else (inputs,)
        self.inputs, self.targets = tuple(part[idx] for part in several), targets[idx]
        self.case, self.x, self.n, self.seed = case, x, len(self.targets), seed
        self.chunk = chunk

    def outputs(self, x):
        own = dict(self.case.model.named_parameters())
        named = dict(zip(own, pieces(x, list(own.values())), strict=True))
        with torch.random.fork_rng(), sdpa_kernel(SDPBackend.MATH):
            torch.manual_seed(self.seed)
            chunks = zip(*(part.split(self.chunk) for part in self.inputs), strict=True)
            return torch.cat(
                [torch.func.functional_call(self.case.model, named, chunk) for chunk in chunks]
            )

    def losses(self, x):
        """One per sample."""
        pairs = zip(self.outputs(x).split(1), self.targets.split(1), strict=True)
        return torch.stack([self.case.loss(*pair) for pair in pairs])

    @cached_property
    def value(self):
        return self.losses(self.x).mean().item()

    @cached_property
    def gradients(self):
        """One row per sample."""
        return jacobian(self.losses, self.x)

    @cached_property
    def gradient(self):
        return self.gradients.mean(0)

    @cached_property
    def squares(self):
        return self.gradients.square().mean(0)

    @cached_property
    def hessian(self):
        return hessian(lambda x: self.losses(x).mean(), self.x)

    @cached_property
    def gauss_newton(self):
        J, z = jacobian(self.outputs, self.x).flatten(0, -2), self.outputs(self.x)
        H = hessian(lambda flat: self.case.loss(flat.view(z.shape), self.targets), z.reshape(-1))
        return J.T @ H @ J

    @cached_property
    def empirical_fisher(self):
        return self.gradients.T @ self.gradients / self.n


def make(name, **options):
    """The problem of a case."""
    case = ZOO[name]()
    return ksdmin.from_torch(case.model, case.loss, case.data, **options)


def from_module(model, data=None, loss=None, **options):
    """A problem of squared errors, in the dtype of the model."""
    X, y = ZOO["mlp"]().data if data is None else data
    return ksdmin.from_torch(model, loss or nn.MSELoss(), (X, y), **options)


def point(problem, size=0.1):
    """Somewhere near the start."""
    generator = torch.Generator().manual_seed(0)
    away = torch.randn(problem.x0.shape, generator=generator, dtype=torch.float64)
    return problem.x0 + size * away.to(problem.x0.device)


@cache
def dense(name, part, chunk=100):
    """A case at `point`, on one of `SETS`."""
    problem, idx = make(name), SETS[part]
    return Dense(ZOO[name](), point(problem), idx, seed_for_set(problem._sums.seed, idx), chunk)


def directions(x, count=3):
    """Random vectors, one per column."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(len(x), count, generator=generator, dtype=x.dtype).to(x.device)


def multiply(product, V):
    """The product with every column."""
    return torch.stack([product(v).clone() for v in V.T], 1)


def assert_close(actual, expected, tolerance=1e-10):
    """To `tolerance` of the largest entry."""
    actual, expected = torch.as_tensor(actual), torch.as_tensor(expected)
    assert actual.shape == expected.shape
    difference = (actual - expected).abs().max()
    assert difference <= tolerance * expected.abs().max(), difference


def numbers(problem, diagonal=True, sets=None):
    """What all verbs give, by default on the whole set and on a part; on the CPU."""
    x, V = point(problem).to(problem.x0.dtype), directions(problem.x0)
    for idx in sets or (WHOLE, torch.arange(1, problem.subsets.n, 2)):
        value, *vectors = problem.value_and_gradient(x, idx, diagonal=diagonal)
        found = torch.tensor(value), *vectors, multiply(problem.curvature(x, idx), V)
        yield from (number.cpu().clone() for number in found)


def assert_same(problem, right, tolerance=0.0, sets=None, sets_of_right=None, diagonal=True):
    """All numbers of two problems; by default to the bit."""
    found = numbers(problem, diagonal, sets), numbers(right, diagonal, sets_of_right or sets)
    for one, other in zip(*found, strict=True):
        assert_close(one, other, tolerance)

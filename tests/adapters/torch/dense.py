"""Derivatives of a case as dense matrices: plain autograd and loops."""

from functools import cache, cached_property

import torch
from torch import nn
from torch.autograd.functional import hessian, jacobian
from torch.nn.attention import SDPBackend, sdpa_kernel

import ksdmin
from ksdmin._adapters.flat_problem import seed_for_set
from tests.adapters.torch.zoo import ZOO

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
        named, at = {}, 0
        for name, parameter in self.case.model.named_parameters():
            named[name] = x[at : at + parameter.numel()].view(parameter.shape)
            at += parameter.numel()
        with torch.random.fork_rng(), sdpa_kernel(SDPBackend.MATH):
            torch.manual_seed(self.seed)
            pieces = zip(*(part.split(self.chunk) for part in self.inputs), strict=True)
            return torch.cat(
                [torch.func.functional_call(self.case.model, named, piece) for piece in pieces]
            )

    def losses(self, x):
        return self.case.losses(self.outputs(x), self.targets)

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
        J = jacobian(self.outputs, self.x).flatten(1, -2)
        z = self.outputs(self.x)
        total = torch.zeros_like(J[0].T @ J[0])
        for i in range(self.n):
            target = self.targets[i : i + 1]
            H = hessian(lambda z, y=target: self.case.losses(z[None], y).sum(), z[i])
            total += J[i].T @ H.reshape(z[i].numel(), -1) @ J[i]
        return total / self.n

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
    return problem.x0 + size * torch.randn(
        problem.x0.shape, generator=generator, dtype=torch.float64
    )


@cache
def dense(name, part, chunk=100):
    """A case at `point`, on one of `SETS`."""
    problem, idx = make(name), SETS[part]
    return Dense(ZOO[name](), point(problem), idx, seed_for_set(problem._sums.seed, idx), chunk)


def directions(x, count=3):
    """Random vectors, one per column."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(len(x), count, generator=generator, dtype=x.dtype)


def multiply(product, V):
    """The product with every column."""
    return torch.stack([product(v) for v in V.T], 1)


def assert_close(actual, expected, tolerance=1e-10):
    """To `tolerance` of the largest entry."""
    actual, expected = torch.as_tensor(actual), torch.as_tensor(expected)
    assert actual.shape == expected.shape
    difference = (actual - expected).abs().max()
    assert difference <= tolerance * expected.abs().max(), difference


def numbers(problem, diagonal=True):
    """What all verbs give, on the whole set and on a part."""
    x, V = point(problem), directions(problem.x0)
    for idx in (WHOLE, torch.arange(1, problem.subsets.n, 2)):
        value, *vectors = problem.value_and_gradient(x, idx, diagonal=diagonal)
        yield from (torch.tensor(value), *vectors, multiply(problem.curvature(x, idx), V))


def assert_same(problem, right, tolerance=0.0, diagonal=True):
    """All numbers of two problems; by default to the bit."""
    pairs = zip(numbers(problem, diagonal), numbers(right, diagonal), strict=True)
    for one, other in pairs:
        assert_close(one, other, tolerance)

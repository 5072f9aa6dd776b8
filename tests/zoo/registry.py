"""The zoo: models and functions as their users write them, by name.

An entry is a function that returns one of the kinds below, all in float64 and small. Each kind
knows two things of it: how its user makes a problem (`problem`), and the same objective as a plain
function (`objective`, of torch's of the flat vector; for a model also `outputs`, `mean_loss` and
`gauss_newton`), which the tests compare it with.

To add one: a function with the decorator `entry` in the file of its family; a new file is named in
`FAMILIES` of entries.py.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

import ksdmin

ENTRIES: dict[str, "Entry"] = {}
RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Entry:
    """One of the zoo: `make(device)` returns one of the kinds below."""

    name: str
    library: str
    make: Callable[[str], Any]
    marks: tuple[Any, ...] = ()


def entry(library, *marks):
    """Register what a function makes; of torch's, it is drawn from a seed of its own."""

    def register(make):
        name = make.__name__
        if name in ENTRIES:
            raise ValueError(f"two entries are named {name!r}")

        def seeded(device="cpu"):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(zlib.crc32(name.encode()))
                return make().to(device)

        ENTRIES[name] = Entry(name, library, seeded, marks)
        return make

    return register


@dataclass(frozen=True)
class Model:
    """A torch module with a loss and data.

    `plain`: a module that computes the same without what is special about `model`, with parameters
    of the same names; `draws`: whether it draws random numbers, so that only it knows its value;
    `has_hessian`: False where torch's own is wrong (see tests/adapters/torch/test_backward.py).
    """

    model: nn.Module
    loss: Any
    data: tuple[Any, Any]
    plain: nn.Module | None = None
    draws: bool = False
    has_hessian: bool = True

    def to(self, device):
        move = nn.Module.to
        data = tree_map(lambda part: part.to(device) if hasattr(part, "to") else part, self.data)
        loss = move(self.loss, device) if isinstance(self.loss, nn.Module) else self.loss
        plain = None if self.plain is None else move(self.plain.double(), device)
        model = move(self.model.double(), device)
        return replace(self, model=model, loss=loss, data=data, plain=plain)

    def problem(self, **options):
        return ksdmin.from_torch(self.model, self.loss, self.data, **options)

    def outputs(self, x):
        model = self.plain or self.model
        free = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        named = dict(zip(free, pieces(x, list(free.values())), strict=True))
        named = {name.replace("_orig_mod.", ""): piece for name, piece in named.items()}
        inputs = tree_map(lambda part: part.detach().clone(), self.data[0])
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        return torch.func.functional_call(model, named, inputs)

    def mean_loss(self, z):
        return self.loss(z, self.data[1])

    def objective(self, x):
        return self.mean_loss(self.outputs(x))

    def gauss_newton(self, x, v):
        """J^T H_L J v, where H_L is the Hessian of the mean loss in all outputs."""
        derivatives = torch.autograd.functional
        shape = self.outputs(x).shape

        def outputs(x):
            with sdpa_kernel(SDPBackend.MATH):  # it can be differentiated twice
                return self.outputs(x).reshape(-1)

        z, Jv = derivatives.jvp(outputs, x, v)
        _, u = derivatives.hvp(lambda flat: self.mean_loss(flat.view(shape)), z.detach(), Jv)
        return derivatives.vjp(outputs, x, u)[1]

    def written(self):
        """What `load` has written."""
        return [p.detach() for p in self.model.parameters() if p.requires_grad]

    def tensors(self):
        """What a run must leave as it is."""
        return [*self.written(), *(t.detach() for t in self.model.buffers()), *leaves(self.data)]


@dataclass(frozen=True)
class Function:
    """A plain function and its x0: a tensor, a module, or nested dicts, lists or tuples of tensors.

    `constants` are the tensors that it reads, as a second argument.
    """

    fun: Callable[..., Any]
    x0: Any
    constants: Any = ()
    outputs = None

    def to(self, device):
        move = self.x0.to if isinstance(self.x0, nn.Module) else None
        x0 = move(device) if move else tree_map(lambda part: part.to(device), self.x0)
        return Function(self.fun, x0, tree_map(lambda part: part.to(device), self.constants))

    def problem(self, **options):
        return ksdmin.from_torch(
            lambda theta: self.fun(theta, *self.constants), x0=self.x0, **options
        )

    def objective(self, x):
        if isinstance(self.x0, nn.Module):
            own = dict(self.x0.named_parameters())
            named = dict(zip(own, pieces(x, list(own.values())), strict=True))
            held = Held(self.fun, self.x0)
            named = {f"module.{name}": piece for name, piece in named.items()}
            return torch.func.functional_call(held, named, self.constants)
        leaves, form = tree_flatten(self.x0)
        return self.fun(tree_unflatten(pieces(x, leaves), form), *self.constants)

    def written(self):
        if isinstance(self.x0, nn.Module):
            return [p.detach() for p in self.x0.parameters()]
        return [leaf.detach() for leaf in tree_flatten(self.x0)[0]]

    def tensors(self):
        return [*self.written(), *leaves(self.constants)]


class Held(nn.Module):
    """A function of a module, as a module."""

    def __init__(self, fun, module):
        super().__init__()
        self.fun, self.module = fun, module

    def forward(self, *constants):
        return self.fun(self.module, *constants)


@dataclass(frozen=True)
class Functional:
    """A function of autograd or jax: a model with `loss` and `data`, or a plain function.

    `losses` are those of (outputs, targets), one per sample, written out.
    """

    build: Callable[..., Any]
    model: Callable[..., Any]
    params: Any
    loss: Any = None
    data: Any = None
    losses: Callable[..., Any] | None = None

    def to(self, device):
        return self

    def problem(self, **options):
        if self.loss is None:
            return self.build(self.model, x0=self.params)
        return self.build(self.model, self.loss, self.data, params=self.params, **options)

    @property
    def outputs(self):
        return None if self.loss is None else lambda tree: self.model(tree, self.data[0])

    def mean_loss(self, z):
        return (self.losses or self.loss)(z, self.data[1]).mean()

    def objective(self, tree):
        return self.model(tree) if self.loss is None else self.mean_loss(self.outputs(tree))


def leaves(data):
    """The tensors of a tree that can be compared: those that are not sparse."""
    parts = [part for part in tree_flatten(data)[0] if isinstance(part, torch.Tensor)]
    return [part for part in parts if part.layout is torch.strided]


def pieces(x, like):
    """A flat vector in tensors of the shapes of `like`."""
    parts = torch.split(x, [tensor.numel() for tensor in like])
    return [part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]


def real(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def normal(*shape):
    """In numpy."""
    return RNG.standard_normal(shape)


def squared(z, y):
    return ((z - y) ** 2).sum(1)


def labels(classes, *shape):
    return torch.randint(classes, shape)

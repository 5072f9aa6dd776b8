"""What is computed on one chunk of samples: sums, weighted by `w` (zero for padding).

Each kernel takes the flat vector, the inputs, the targets and the weights, and returns tensors on
the device, so that it can be run eagerly or captured in a CUDA graph. The messages for derivatives
that torch lacks, and for wrong gradients, are here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ksdmin._adapters import curvature as _curvature
from ksdmin._adapters.arguments import REAL_LOSS, check_real
from ksdmin._adapters.curvature import SampleLoss
from ksdmin._adapters.torch.convolution import LeanConvolutions
from ksdmin._adapters.torch.flat_model import FlatModel
from ksdmin._problem.arrays import Space
from ksdmin._problem.slope_check import slope_ratio

# Parts of torch's messages: for missing derivatives, for functions whose backward pass may be
# called once, and for one that goes through numpy.
_SIGNS = (
    "is not implemented",
    "differentiate twice",
    "once_differentiable",
    "ouble backward",
    "Can't call numpy() on Tensor that requires grad",
)
OWN_PRODUCTS = "give products of your own (curvature=(x, idx) -> product)"
OF_THE_MODEL = (
    "curvature products differentiate the model's backward pass, which torch cannot do: {error}. "
    "Compute the same with other operations (in an autograd.Function: a backward pass of torch "
    "operations, without once_differentiable), or " + OWN_PRODUCTS
)
OF_THE_LOSS = (
    "the Gauss-Newton matrix needs second derivatives of the loss, which torch does not have: "
    "{error}. Write the loss with other operations, use curvature='empirical-fisher', which needs "
    "none, or " + OWN_PRODUCTS
)
OF_THE_FUNCTION = (
    OF_THE_MODEL.replace("the model's backward pass", "the function's gradient")
    + ", or do without: "
    "ksdmin.minimize(problem.fun, x, jac=problem.jac) with a numpy x takes differences of gradients"
)


class MissingDerivative(RuntimeError):
    """An error of torch that has been explained."""


@contextmanager
def explained(message: str) -> Iterator[None]:
    """Raise an error of torch about a missing derivative with `message`, which says what to do."""
    try:
        yield
    except (RuntimeError, NotImplementedError) as error:
        first = str(error).split("\n")[0].rstrip(".")
        if isinstance(error, MissingDerivative) or not any(sign in first for sign in _SIGNS):
            raise
        raise MissingDerivative(message.format(error=first)) from error


def refuse_once_differentiable(g: Tensor) -> None:
    """Raise for a gradient whose graph has a node of once_differentiable.

    Torch raises only if a derivative passes through that node. For derivatives in the variables
    alone it leaves the node out, and the result is wrong.
    """
    if any(node.name() == "torch::autograd::Error" for node in nodes(g)):
        raise RuntimeError("differentiate twice: a backward pass is once_differentiable")


def nodes(z: Tensor) -> Iterator[Any]:
    """The nodes of the graph of a tensor."""
    waiting: list[Any] = [z.grad_fn]
    seen: set[Any] = {z.grad_fn, None}
    while waiting:
        node = waiting.pop()
        if node is None:  # of a tensor without a graph
            return
        yield node
        for child, _ in node.next_functions:
            if child not in seen:
                seen.add(child)
                waiting.append(child)


# Whether a gradient of torch is that of the values, and what to look for if it is not


RETAINED = (
    "A derivative within it needs create_graph=True: torch.autograd.grad(u.sum(), x, "
    "create_graph=True), not retain_graph=True, nor backward(retain_graph=True) and x.grad: these "
    "leave a part of the gradient out, and torch does not tell. Look for .detach() and .data, too"
)


def contradicts(value_at: Callable[[Tensor], float], x: Tensor, value: float, g: Tensor) -> bool:
    """Whether values near x contradict `g`; one value is computed if they agree."""
    return slope_ratio(value_at, x, value, g, Space(x)) is not None


Product = Callable[[Tensor], Tensor]
Chunk = tuple[Any, Any, Tensor]
"""Inputs, targets and weights of some samples."""
Kernel = Callable[[Tensor, Chunk], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Forward:
    """A forward pass with its graph, over which anything may be differentiated."""

    parameters: list[Tensor]  # the leaves of the graph
    z: Tensor  # the outputs; of a model that returns its own loss, the losses
    # Of the samples.
    targets: Any
    w: Tensor
    logits: Tensor | None = None  # what a model's own loss is computed from, where there is such


class Kernels:
    """The computations for a model and a loss."""

    def __init__(self, model: FlatModel, loss: SampleLoss, curvature: str) -> None:
        self.model, self.loss, self.curvature = model, loss, curvature
        # What makes the kernel of the diagonal, where it is asked for.
        self.make_diagonal: Callable[[], Any] | None = None
        self.rows: Kernel | None = None  # of the Jacobian
        self.slopes: Kernel | None = None  # of the losses in the outputs
        self.factors: Any = None  # of Kronecker
        self.bytes_per_sample = 1  # that a forward pass keeps for the backward pass
        self.is_scalar = False  # whether the model returns its own loss, as the mean of a batch
        self.values_need_grad = False  # whether the model differentiates in its forward pass
        self.lean_convolutions = False  # whether its convolutions are replaced for products
        self.fault: str | None = None  # why its curvature products are wrong, or missing

    @property
    def has_diagonal(self) -> bool:
        """Whether there is a kernel of the diagonal, or may be one."""
        return self.make_diagonal is not None or self.diagonal is not None

    @cached_property
    def diagonal(self) -> Any:
        """The kernel of the preconditioner's diagonal; None: there is none."""
        return None if self.make_diagonal is None else self.make_diagonal()

    @property
    def by_differences(self) -> bool:
        """Whether gradients have to do for products; those of Fisher's matrix cannot."""
        return self.fault is not None and self.curvature in ("gauss-newton", "hessian")

    def value(self, x: Tensor, chunk: Chunk) -> tuple[Tensor]:
        """The sum of the losses, in float64."""
        inputs, targets, w = chunk
        with torch.set_grad_enabled(self.values_need_grad):
            z = self.model(self.model.split(x), inputs).detach()
        with torch.no_grad():
            return (self.total_loss(z, targets, w),)

    def gradient(self, x: Tensor, chunk: Chunk) -> tuple[Tensor, Tensor]:
        """The sum of the losses and its gradient."""
        inputs, targets, w = chunk
        parameters = self.model.leaves(x)
        total = self.total_loss(self.model(parameters, inputs), targets, w)
        g = self.model.derivatives(parameters, total)
        return total.detach(), self.model.flat(g, x)

    def product(self, x: Tensor, chunk: Chunk) -> Product:
        """The curvature at x; what all products share is computed once, here."""
        if self.fault is not None:
            raise ValueError(self.fault)
        lean = LeanConvolutions(jacobian=self.curvature != "hessian")
        with explained(OF_THE_MODEL), lean if self.lean_convolutions else nullcontext():
            forward = self.forward(x, chunk)
        return self.product_over(forward)

    def forward(self, x: Tensor, chunk: Chunk) -> Forward:
        """A forward pass, to be differentiated."""
        inputs, targets, w = chunk
        parameters = self.model.leaves(x)
        return Forward(parameters, self.model(parameters, inputs), targets, w)

    def product_over(self, forward: Forward) -> Product:
        """The curvature over the graph of a forward pass."""
        with explained(OF_THE_MODEL):
            product = self._product(forward)

        def multiply(v: Tensor) -> Tensor:
            with explained(OF_THE_MODEL):
                return product(v)

        return multiply

    def _product(self, forward: Forward) -> Product:
        parameters, z, targets, w = forward.parameters, forward.z, forward.targets, forward.w
        if self.curvature == "hessian":
            total = self.total_loss(z, targets, w)
            g = self.model.derivatives(parameters, total, create_graph=True)
            return self._second_derivative(g, parameters)
        jvp, vjp = self.jacobian(z, parameters)
        return _curvature.gauss_newton(jvp, vjp, self.output_hessian(z.detach(), targets, w))

    def output_hessian(self, z: Tensor, targets: Any, w: Tensor) -> Product:
        """The matrix between J^T and J: the Hessian of the losses, or r r^T of each sample.

        For a model that is linear in its parameters, the exact Hessian has the former, too.
        """
        if self.curvature in ("gauss-newton", "hessian"):
            return self.loss_hessian(z, targets, w)
        if self.curvature == "fisher":
            # The expectation of r r^T must be the Hessian of the loss, so that the factor between
            # loss and negative log-likelihood enters once, not squared.
            w = (w / self.loss.likelihood_scale(z)).sqrt()
        return _curvature.outer_product(self.total_and_slopes(z, targets, w)[1])

    def draw(self, x: Tensor, chunk: Chunk, generator: torch.Generator, precision: str) -> Chunk:
        """The chunk with targets drawn from the model's own predictions.

        The random numbers of the model itself (dropout) will be the same for the product.
        """
        inputs, targets, w = chunk
        assert self.loss.draw is not None
        with torch.no_grad(), self.model.arithmetic(precision), self.model.restored_randomness():
            z = self.model(self.model.split(x), inputs).detach()
            return inputs, self.loss.draw(z, targets, generator), w

    def total_loss(self, z: Tensor, targets: Any, w: Tensor) -> Tensor:
        """The sum of the weighted losses, in float64."""
        return (self.losses(z, targets, len(w)).to(torch.float64) * w).sum()

    def losses(self, z: Tensor, targets: Any, n: int) -> Tensor:
        """The loss of each of `n` samples."""
        if z.shape[:1] != (n,):
            raise ValueError(
                f"the model returned shape {tuple(z.shape)} for {n} samples: the first axis must "
                "be that of the samples"
            )
        losses: Tensor = self.loss.losses(z, targets)
        check_real(losses, "loss", REAL_LOSS)
        if losses.shape != (n,):
            raise ValueError(
                f"loss returned shape {tuple(losses.shape)} for {n} samples: it must return one "
                f"loss per sample, shape ({n},), not a mean"
            )
        return losses

    def single_losses(self, forward: Forward, inputs: Any) -> Iterable[Tensor]:
        """The weighted loss of each sample of a pass, each a tensor of its own."""
        w = forward.w
        return self.losses(forward.z, forward.targets, len(w)) * w

    def jacobian(self, z: Tensor, parameters: list[Tensor]) -> tuple[Product, Product]:
        """J v and J^T u over the graph of one forward pass.

        J^T u is linear in u: differentiating it in u gives J v (differentiating backward twice),
        so that no activation is computed again.
        """
        u = torch.zeros_like(z, requires_grad=True)
        transposed = self.model.derivatives(parameters, z, u, create_graph=True)
        used = _differentiable(transposed)

        def jvp(v: Tensor) -> Tensor:
            pieces = self.model.split(v)
            slopes, along = [transposed[i] for i in used], [pieces[i] for i in used]
            (Jv,) = self.model.derivatives(parameters, slopes, along, of=u, retain_graph=True)
            return torch.zeros_like(u) if Jv is None else Jv

        def vjp(s: Tensor) -> Tensor:
            pieces = self.model.derivatives(parameters, z, s, retain_graph=True)
            return self.model.flat(pieces, s)

        return jvp, vjp

    def _second_derivative(self, g: tuple[Any, ...], parameters: list[Tensor]) -> Product:
        """The exact Hessian: the gradient, differentiated along v (Pearlmutter's trick)."""
        used = _differentiable(g)

        def product(v: Tensor) -> Tensor:
            if not used:  # a loss that is linear in the parameters
                return torch.zeros_like(v)
            pieces = self.model.split(v)
            slopes, along = [g[i] for i in used], [pieces[i] for i in used]
            second = self.model.derivatives(parameters, slopes, along, retain_graph=True)
            return self.model.flat(second, v)

        return product

    def loss_hessian(self, z: Tensor, targets: Any, w: Tensor) -> Product:
        """The Hessian of the losses in the outputs: in closed form, or by autodiff."""
        if self.loss.hessian is not None:
            return self.loss.hessian(z, targets, w.to(z.dtype))
        z = z.requires_grad_()
        total = self.total_loss(z, targets, w)
        (r,) = torch.autograd.grad(total, z, create_graph=True)
        return hessian_of(r, z)

    def total_and_slopes(self, z: Tensor, targets: Any, w: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of the weighted losses, and the gradient of each in the outputs."""
        z = z.requires_grad_()
        total = self.total_loss(z, targets, w)
        (r,) = torch.autograd.grad(total, z)
        return total, r


def hessian_of(r: Tensor, z: Tensor) -> Product:
    """The Hessian of a loss in z, from its gradient r there."""
    if not r.requires_grad:  # a loss that is linear in z
        return torch.zeros_like

    def product(u: Tensor) -> Tensor:
        with explained(OF_THE_LOSS):
            return torch.autograd.grad(
                r, z, u, retain_graph=True, allow_unused=True, materialize_grads=True
            )[0]

    return product


def _differentiable(pieces: tuple[Tensor | None, ...]) -> list[int]:
    """Which of the derivatives exist and can be differentiated again."""
    return [i for i, piece in enumerate(pieces) if piece is not None and piece.requires_grad]

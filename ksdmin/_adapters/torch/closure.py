"""A training closure as a problem; before a call, its parameters are set to the point."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import compress
from typing import Any

import torch
from torch import Tensor

from ksdmin._adapters.torch.flat_model import check_alike, not_compiled
from ksdmin._adapters.torch.kernels import RETAINED, Product, contradicts
from ksdmin._adapters.torch.model_calls import generator_states
from ksdmin._problem import differences
from ksdmin._problem.arrays import Space
from ksdmin._problem.counting import CountingProblem, Counts
from ksdmin._problem.protocol import Traits

NO_GRAPH = (
    "the closure neither called loss.backward(), nor returned a loss with a graph from the "
    "parameters: return the loss itself, without .item(), .detach() or torch.no_grad()"
)
CHANGED_ITS_WAY = (
    "the closure called loss.backward() in one call, and not in another: expected one or the other"
)
WRONG_GRADIENT = (
    "KSD: the gradient is not that of the loss that the closure returned: the loss beside the "
    "parameters contradicts it. If the closure calls backward(), it has to be that of the whole "
    "loss, once, and gradients must not be clipped or scaled"
)
NO_SECOND_DERIVATIVE = (
    "ksdmin differentiates the loss that the closure returned twice. Where a part of it has a "
    "first derivative only, call loss.backward() in the closure: products are then made of "
    "differences of gradients"
)


class FlatParameters:
    """Parameters as one flat vector: those that require a gradient now."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.sizes = [p.numel() if p.requires_grad else 0 for p in tensors]
        self.tensors = [p for p in tensors if p.requires_grad]
        if not self.tensors:
            raise ValueError(
                "KSD: no parameter requires a gradient: there is nothing to minimise over"
            )
        check_alike(self.tensors, "compute under torch.autocast in the closure")

    def flat(self) -> Tensor:
        """A copy of the parameters as one vector."""
        return _joined(self.tensors, self.tensors)

    def split(self, x: Tensor) -> list[Tensor]:
        """Views of a vector in the shapes of the parameters."""
        pieces = torch.split(x, [p.numel() for p in self.tensors])
        return [piece.view_as(p) for piece, p in zip(pieces, self.tensors, strict=True)]

    def write(self, x: Tensor) -> None:
        """Set the parameters to a vector."""
        with torch.no_grad():
            for p, piece in zip(self.tensors, self.split(x), strict=True):
                p.copy_(piece)

    @contextmanager
    def moved_to(self, x: Tensor) -> Iterator[None]:
        """Within it, the parameters are `x`.

        They are changed through ``data``, so that autograd does not notice, and a graph made before
        can be used after.
        """
        before = [p.detach().clone() for p in self.tensors]
        try:
            for p, piece in zip(self.tensors, self.split(x), strict=True):
                p.data.copy_(piece)
            yield
        finally:
            for p, old in zip(self.tensors, before, strict=True):
                p.data.copy_(old)

    def gradients(self) -> list[Tensor | None]:
        """The attributes ``grad``."""
        return [p.grad for p in self.tensors]

    def set_gradients(self, gradients: Sequence[Tensor | None]) -> None:
        """Set the attributes ``grad``."""
        for p, g in zip(self.tensors, gradients, strict=True):
            p.grad = g


class Closure:
    """The function of a flat vector that a closure computes, and what it gave at its last point.

    It is taken as deterministic: asked twice at the same vector (the same object), it is called
    once.
    """

    def __init__(
        self,
        function: Callable[[], Any],  # closure() -> loss
        parameters: FlatParameters,
        # Whether what torch.compile was applied to runs eagerly: compiled, a loss has no second
        # derivatives. A closure that calls backward() needs none.
        *,
        eager: bool = True,
    ) -> None:
        self._function, self.parameters, self.eager = function, parameters, eager
        self.calls = 0
        self.calls_backward = False  # whether it did so when it was last called: there is no graph
        self.draws = False  # whether its first call has drawn from torch's generators
        self.result: Any = None  # what it returned last, without its graph
        self._x: Tensor | None = None  # where the parameters are
        self._loss: Tensor | None = None  # with its graph, which is valid for these parameters only
        self._value, self._gradient = 0.0, torch.empty(0)

    def value_and_gradient(self, x: Tensor) -> tuple[float, Tensor]:
        """The loss and its gradient at `x`."""
        if self._x is not x:
            self._evaluate(x)
        return self._value, self._gradient

    def product(self, x: Tensor) -> Product:
        """The product v -> Hv by a second derivative; valid until the next evaluation."""
        if self._x is not x:
            self._evaluate(x)
        tensors, split = self.parameters.tensors, self.parameters.split
        with _noted():
            gradients = _derivatives(self._loss, tensors, create_graph=True)
        curved = [g is not None and g.requires_grad for g in gradients]
        outputs = list(compress(gradients, curved))

        def times(v: Tensor) -> Tensor:
            if not outputs:  # a loss that is linear in its parameters
                return torch.zeros_like(v)
            with _noted():
                Hv = _derivatives(outputs, tensors, list(compress(split(v), curved)))
            return _joined(Hv, tensors)

        return times

    def check_gradient(self, x: Tensor) -> None:
        """Raise if values near `x` contradict the gradient; usually takes one call."""
        value, g = self.value_and_gradient(x)
        if contradicts(self.value_beside, x, value, g):
            raise ValueError(f"{WRONG_GRADIENT}. {RETAINED}")

    def value_beside(self, x: Tensor) -> float:
        """The loss at another point; the parameters, and the graph at the last one, are kept."""
        with self.parameters.moved_to(x):
            return _checked_value(self._called())

    @torch.enable_grad()
    def _called(self) -> Any:
        self.calls += 1
        self.parameters.set_gradients([None] * len(self.parameters.tensors))
        with not_compiled() if self.eager else nullcontext():
            return self._function()

    def leave(self) -> None:
        """Forget the last point, and free its graph."""
        self._x = self._loss = None

    def _evaluate(self, x: Tensor) -> None:
        self.leave()  # first, so that there is only one graph at a time
        self.parameters.write(x)
        tensors, device, first = self.parameters.tensors, x.device, not self.calls
        before = generator_states(device) if first else []
        with _watching(tensors) as accumulated:
            loss = self._called()
        if first:
            self.draws = not all(map(torch.equal, before, generator_states(device)))
        self._value = _checked_value(loss)
        graph = isinstance(loss, Tensor) and loss.requires_grad
        # With a graph, a gradient that is not from backward(): usually zeros.
        calls_backward = bool(accumulated) or not graph
        if self.calls > 1 and calls_backward is not self.calls_backward:
            raise ValueError(CHANGED_ITS_WAY)
        self.calls_backward = calls_backward
        found = self.parameters.gradients() if calls_backward else _derivatives(loss, tensors)
        if all(g is None for g in found):
            raise ValueError(NO_GRAPH)
        self._gradient = _joined(found, tensors)
        self.result = loss.detach() if isinstance(loss, Tensor) else loss
        self._x, self._loss = x, None if calls_backward else loss


class ClosureProblem(CountingProblem):
    """A closure as the problem of a run; it has been called once, so that its kind is known."""

    def __init__(self, closure: Closure, space: Space) -> None:
        self._closure, self._space, self._counts = closure, space, Counts()
        differenced = closure.calls_backward
        power = differences.ERROR_POWER[differences.OF_GRADIENTS] if differenced else 1.0
        self.traits = Traits(product_accuracy=power)

    def value(self, x: Tensor, idx: Any) -> float:
        """The loss."""
        self._counts.nfev += 1
        return self._closure.value_and_gradient(x)[0]

    def value_and_gradient(self, x: Tensor, idx: Any, *, diagonal: bool = False) -> Any:
        """The loss and its gradient."""
        self._counts.nfev += 1
        self._counts.njev += 1
        return self._closure.value_and_gradient(x)

    def curvature(self, x: Tensor, idx: Any) -> Product:
        """The product v -> Hv, or a difference of gradients."""
        if self._closure.calls_backward:
            _, g0 = self._closure.value_and_gradient(x)
            return differences.product_of_gradients(self, x, idx, g0, self._space)
        product = self._closure.product(x)

        def counted(v: Tensor) -> Tensor:
            self._counts.nhev += 1
            return product(v)

        return counted


def _derivatives(
    outputs: Any, tensors: Sequence[Tensor], along: Any = None, *, create_graph: bool = False
) -> Sequence[Tensor | None]:
    """The derivatives of `outputs`; None for a tensor without effect. The graph is kept."""
    return torch.autograd.grad(
        outputs, tensors, along, retain_graph=True, create_graph=create_graph, allow_unused=True
    )


def _joined(parts: Sequence[Tensor | None], like: Sequence[Tensor]) -> Tensor:
    """Derivatives with respect to the tensors `like`, copied into one vector without a graph."""
    for part in parts:
        if part is not None and part.layout != torch.strided:
            raise TypeError(
                f"KSD: the gradient of a parameter has layout {part.layout}; expected a dense one, "
                "as of nn.Embedding(..., sparse=False)"
            )
    whole = [p.new_zeros(p.shape) if u is None else u for u, p in zip(parts, like, strict=True)]
    return torch.cat([part.detach().reshape(-1) for part in whole])


def _checked_value(loss: Any) -> float:
    if loss is None:
        raise TypeError("the closure returned None: expected the loss (is a return missing?)")
    if isinstance(loss, (tuple, list, dict)):
        raise TypeError(f"the closure returned a {type(loss).__name__}: expected the loss alone")
    if isinstance(loss, Tensor) and (loss.numel() != 1 or loss.is_complex()):
        raise ValueError(
            f"the closure must return one real number, not {loss.dtype} of shape "
            f"{tuple(loss.shape)}"
        )
    return float(loss.detach()) if isinstance(loss, Tensor) else float(loss)


@contextmanager
def _watching(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """A list to which backward() adds every tensor that gets a gradient."""
    seen: list[Tensor] = []
    watched: Sequence[Any] = tensors  # whose method has no types
    hooks = [p.register_post_accumulate_grad_hook(seen.append) for p in watched]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _noted() -> Iterator[None]:
    """Add to torch's errors what the user can do."""
    try:
        with torch.enable_grad():
            yield
    except RuntimeError as error:
        if not isinstance(error, torch.cuda.OutOfMemoryError):
            error.add_note(NO_SECOND_DERIVATIVE)
        raise

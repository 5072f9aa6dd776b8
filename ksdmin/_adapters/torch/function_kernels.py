"""What is computed of a plain function: eagerly, or within a run on CUDA through CUDA graphs."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from ksdmin._adapters.model_problem import Sums
from ksdmin._adapters.torch.cuda_graphs import Graphed, GraphedProduct, drop_oldest
from ksdmin._adapters.torch.double_backward import (
    OF_THE_FUNCTION,
    explained,
    refuse_once_differentiable,
)
from ksdmin._adapters.torch.flat_function import NO_GRAPH, FlatFunction
from ksdmin._adapters.torch.flat_model import LOCK
from ksdmin._adapters.torch.kernels import Product
from ksdmin._adapters.trees import tree_map
from ksdmin._problem.subsets import WHOLE
from ksdmin._problem.values import changed

log = logging.getLogger("ksdmin")

# A capture takes about as long as so many eager runs: with fewer of them before it, functions whose
# sets are of another size every time would take longer; with more, the others.
RUNS_BEFORE_CAPTURE = 5

Kernel = Callable[[Tensor, Any], Any]


class Executor(Protocol):
    """Runs the kernels of a function at (x, idx)."""

    def run(self, kind: str, x: Tensor, idx: Any, precision: str) -> tuple[Tensor, ...]:
        """("value") the value; ("gradient") the value and the gradient."""

    def product(self, x: Tensor, idx: Any, precision: str) -> Product:
        """The Hessian at x."""


class FunctionKernels:
    """The value, the gradient and the Hessian of a function, eagerly."""

    def __init__(self, function: FlatFunction) -> None:
        self.function = function
        self._twice_differentiable = False  # whether that has been checked

    def run(self, kind: str, x: Tensor, idx: Any, precision: str) -> tuple[Tensor, ...]:
        """("value") the value; ("gradient") the value and the gradient."""
        with self.function.arithmetic(precision):
            return self.by_name(kind)(x, idx)  # type: ignore[no-any-return]

    def product(self, x: Tensor, idx: Any, precision: str) -> Product:
        """The Hessian at x: the gradient's graph is made once, and kept for all products."""
        arithmetic = partial(self.function.arithmetic, precision)
        with arithmetic():
            multiply = self.hessian(x, idx)

        def product(v: Tensor) -> Tensor:
            with arithmetic():
                return multiply(v)

        return product

    def by_name(self, kind: str) -> Kernel:
        """The kernel "value" or "gradient"."""
        kernel: Kernel = getattr(self, kind)
        return kernel

    def value(self, x: Tensor, idx: Any) -> tuple[Tensor]:
        """The value, without its graph."""
        return (self._call(_leaf(x), idx).detach(),)

    def gradient(self, x: Tensor, idx: Any) -> tuple[Tensor, Tensor]:
        """The value and the gradient."""
        leaf = _leaf(x)
        value = self._call(leaf, idx)
        return value.detach(), self._gradient(value, leaf)

    def hessian(self, x: Tensor, idx: Any) -> Product:
        """The product v -> Hv."""
        leaf = _leaf(x)
        value = self._call(leaf, idx)
        with explained(OF_THE_FUNCTION):
            g = self._gradient(value, leaf, create_graph=True)
            if not self._twice_differentiable:
                refuse_once_differentiable(g)
                self._twice_differentiable = True
        if not g.requires_grad:  # a function that is linear in its parameters
            return torch.zeros_like

        def product(v: Tensor) -> Tensor:
            with explained(OF_THE_FUNCTION):
                Hv: Tensor = self._derivative(g, leaf, v, retain_graph=True, materialize_grads=True)
                return Hv

        return product

    def _call(self, leaf: Tensor, idx: Any) -> Tensor:
        return self.function.value(leaf, *idx)

    def _gradient(self, value: Tensor, leaf: Tensor, **kwargs: Any) -> Tensor:
        g: Tensor | None = self._derivative(value, leaf, **kwargs)
        if g is None:  # the graph is that of other tensors
            raise ValueError(NO_GRAPH)
        return g

    def _derivative(self, y: Tensor, leaf: Tensor, *u: Tensor, **kwargs: Any) -> Any:
        """``torch.autograd.grad`` in the leaf."""
        function = self.function
        pieces = function.split(leaf.detach().requires_grad_()) if function.recomputes else []
        return function.derivatives(pieces, y, leaf, *u, allow_unused=True, **kwargs)[0]


def _leaf(x: Tensor) -> Tensor:
    """A point, as a leaf of a new graph: a copy, as the caller may write into x."""
    return x.detach().clone().requires_grad_()


class FunctionGraphs:
    """The same through CUDA graphs, for one run: between runs, what a function reads may change.

    What is asked for often enough is captured, for the whole set and for each number of samples.
    Where that fails (the function reads values on the host, say) it runs eagerly.
    """

    def __init__(self, kernels: FunctionKernels) -> None:
        self._kernels = kernels
        self._runs: Counter[tuple[Any, ...]] = Counter()
        self._captured: dict[tuple[Any, ...], Any] = {}  # the latest used last
        self._works = True

    def run(self, kind: str, x: Tensor, idx: Any, precision: str) -> tuple[Tensor, ...]:
        """As that of the kernels; the outputs are copies."""
        key = kind, _size(idx), precision
        self._runs[key] += 1
        kernel = self._kernels.by_name(kind)
        at_hand = self._at_hand(key, lambda: Graphed(kernel, x, *_samples(idx)))
        if at_hand is None:
            return self._kernels.run(kind, x, idx, precision)
        with LOCK:
            return tuple(output.clone() for output in at_hand(x, idx))

    def product(self, x: Tensor, idx: Any, precision: str) -> Product:
        """As that of the kernels."""
        key = "hessian", _size(idx), precision
        kernel = self._kernels.hessian
        at_hand = self._at_hand(key, lambda: GraphedProduct(kernel, x, *_samples(idx)))
        if at_hand is None:
            return self._counting(key, self._kernels.product(x, idx, precision))
        point, owner = x.clone(), object()

        def product(v: Tensor) -> Tensor:
            with LOCK:
                if at_hand.owner is not owner:
                    at_hand.set_up(point, idx)
                    at_hand.owner = owner
                return at_hand(v).clone()  # type: ignore[no-any-return]

        return product

    def _counting(self, key: tuple[Any, ...], product: Product) -> Product:
        def counted(v: Tensor) -> Tensor:
            self._runs[key] += 1
            return product(v)

        return counted

    def _at_hand(self, key: tuple[Any, ...], capture: Callable[[], Any]) -> Any:
        """What was captured for a key, or is now; None: it runs eagerly."""
        kind, size, precision = key
        if not self._works or size is None or self._runs[key] <= RUNS_BEFORE_CAPTURE:
            return None
        found = self._captured.pop(key, None)
        if found is None:
            drop_oldest(self._captured, kind)
            try:
                with self._kernels.function.arithmetic(precision):
                    found = capture()
            except RuntimeError as error:
                log.warning("ksdmin: no CUDA graphs for this function, it runs eagerly: %s", error)
                self._works, self._captured = False, {}
                return None
        self._captured[key] = found
        return found


class FunctionSums(Sums):
    """A function as a sum of one term: the mean over a set is its own.

    Parameters
    ----------
    function : FlatFunction
        The function.
    sampled : bool
        Whether it takes a set of samples.
    graphs : bool
        Whether a run tries CUDA graphs.
    """

    def __init__(self, function: FlatFunction, sampled: bool, graphs: bool) -> None:
        self._function, self._sampled, self._graphs = function, sampled, graphs
        self._executor: Executor = FunctionKernels(function)

    def for_run(self) -> FunctionSums:
        """The same for a run, or for the next step of one: a run has graphs of its own."""
        if not self._graphs or isinstance(self._executor, FunctionGraphs):
            return self
        assert isinstance(self._executor, FunctionKernels)
        return changed(self, _executor=FunctionGraphs(self._executor))

    def indices(self, idx: Any) -> Any:
        """A set, whatever it is; of a function without samples, the whole."""
        if not self._sampled and not (isinstance(idx, slice) and idx == WHOLE):
            raise ValueError(
                "a function of the parameters alone was asked for some samples only: give "
                "subsets= to from_torch, and the function an argument idx"
            )
        return idx

    def arguments(self, idx: Any) -> tuple[Any, ...]:
        """What the function gets beside the parameters: a set of samples, or nothing."""
        return (idx,) if self._sampled else ()

    def total(self, kind: str, x: Tensor, idx: Any, precision: str) -> tuple[Tensor, ...]:
        """("value") the value, in float64; ("gradient") and the gradient."""
        value, *gradient = self._executor.run(kind, x, self.arguments(idx), precision)
        return value.to(torch.float64), *gradient

    def product(
        self, x: Tensor, idx: Any, precision: str, on_recompute: Callable[[], None]
    ) -> Product:
        """The product with the Hessian: what all products share is computed once."""
        return self._executor.product(x, self.arguments(idx), precision)

    def __getstate__(self) -> dict[str, Any]:
        # Graphs belong to a run, and to a process.
        return {**self.__dict__, "_executor": FunctionKernels(self._function)}


def _size(idx: tuple[Any, ...]) -> int | None:
    """What a graph for these samples is kept under: -1 for everything, None where there is none."""
    if not idx or (isinstance(idx[0], slice) and idx[0] == slice(None)):
        return -1
    rows = idx[0]
    plain = isinstance(rows, Tensor) and rows.is_cuda and rows.ndim == 1
    return len(rows) if plain and rows.dtype == torch.int64 else None


def _samples(idx: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """What a graph reads the samples from, and what it is compared on: all of them."""
    return tree_map(lambda rows: rows.clone() if isinstance(rows, Tensor) else rows, idx), idx, idx

"""A plain torch function as a problem over one flat vector: exact derivatives by autodiff."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ksdmin._adapters.arguments import noting_samples
from ksdmin._adapters.flat_problem import VALUE_NOISE, is_gradient
from ksdmin._adapters.model_problem import Sums
from ksdmin._adapters.torch.cuda_graphs import Graphed, GraphedProduct, drop_oldest
from ksdmin._adapters.torch.flat_model import LOCK, FlatModel, doubled
from ksdmin._adapters.torch.kernels import (
    OF_THE_FUNCTION,
    Product,
    explained,
    refuse_once_differentiable,
)
from ksdmin._adapters.torch.problem import TensorProblem
from ksdmin._adapters.trees import dotted, paths, rebuilt, tree_map
from ksdmin._problem.protocol import Traits
from ksdmin._problem.subsets import WHOLE, Subsets
from ksdmin._problem.values import changed

NO_GRAPH = (
    "the function's value does not depend on x0's tensors, as far as autograd knows: use the "
    "argument (theta) in it, and neither .detach(), .item(), numpy nor torch.no_grad()"
)


class FlatFunction(FlatModel):
    """A function of tensors as one of a flat vector."""

    def __init__(
        self,
        fun: Callable[..., Any],  # fun(theta), or fun(theta, idx)
        # What theta looks like: a tensor, a module, or a nested dict, list or tuple of tensors.
        # Parameters that require no gradient stay as they are.
        x0: Any,
        precision: str = "highest",  # as in :class:`FlatModel`
    ) -> None:
        self._fun, self._holder = fun, _Holder(x0)
        super().__init__(self._holder, None, precision)
        self.modes.add(fun)
        self.module = self._holder.module  # x0, if that is a module
        self.recomputes = self.module is not None  # it may, and this costs little
        if not self.x0.numel():
            raise ValueError("x0 is empty: there is nothing to minimise over")

    def in_double(self) -> FlatFunction:
        """The same function from a copy of x0 in float64."""
        with self.modes.in_force():  # the copy keeps them
            if self.module is not None:
                return FlatFunction(self._fun, doubled(self.module))
            own = {
                f"tensors.{i}": nn.Parameter(t.detach().double(), requires_grad=t.requires_grad)
                for i, t in enumerate(self._holder.tensors)
            }
            return FlatFunction(self._fun, self._holder.rebuilt(own))

    def value(self, x: Tensor, *idx: Any) -> Tensor:
        """The value at a vector that requires a gradient; checked to be a scalar with a graph."""
        with noting_samples(bool(idx)):
            value = self.called(x, *idx)
        return _checked_value(value)

    def called(self, x: Tensor, *idx: Any) -> Any:
        """What the user's function returns."""
        if self.module is None:
            return self._fun(self.unflatten(x), *idx)
        return self.holding(self.split(x), self._fun, self.module, *idx)

    def unflatten(self, x: Tensor) -> Any:
        """A vector in the form of x0."""
        return self._holder.rebuilt(dict(zip(self._names, self.split(x), strict=True)))

    def slices(self) -> dict[str, slice]:
        """The slice of the flat vector that each tensor takes, by its path in x0."""
        return {self._holder.paths[name]: part for name, part in super().slices().items()}


class _Holder(nn.Module):
    """Holds x0: a module, or tensors as parameters.

    The parameters share the memory of the tensors, so that a copy into them changes these.
    """

    def __init__(self, x0: Any) -> None:
        super().__init__()
        self.module = x0 if isinstance(x0, nn.Module) else None
        if isinstance(x0, nn.Module):
            names = [name for name, _ in x0.named_parameters()]
            self.paths = {f"module.{name}": name for name in names}
            return
        kinds = (Tensor, Mapping, list, tuple, str)
        if isinstance(x0, Iterable) and not isinstance(x0, kinds) and not hasattr(x0, "dtype"):
            x0 = list(x0)  # an iterator, such as net.parameters()
        self._form = (x0,)  # a module would register a parameter as its own
        leaves = _leaves(x0)
        if len({id(leaf) for _, leaf in leaves}) < len(leaves):
            raise ValueError("x0 holds the same tensor twice: give it once, and use it twice")
        self.tensors = nn.ParameterList([_parameter(leaf) for _, leaf in leaves])
        self.paths = {f"tensors.{i}": path for i, (path, _) in enumerate(leaves)}

    def rebuilt(self, tensors: Mapping[str, Tensor]) -> Any:
        """The form of x0 with these tensors."""
        if self.module is not None:
            return {self.paths[name]: tensor for name, tensor in tensors.items()}
        own = {f"tensors.{i}": tensor.detach() for i, tensor in enumerate(self.tensors)}
        return rebuilt(self._form[0], iter((own | dict(tensors)).values()))


def _leaves(form: Any) -> list[tuple[str, Tensor]]:
    """The tensors of a nested form, each with its path, such as ``layer.0``."""
    found = [(dotted(path), leaf) for path, leaf in paths(form)]
    for path, leaf in found:
        if not isinstance(leaf, Tensor):
            where = f" at {path!r}" if path else ""
            raise TypeError(
                "x0: expected a tensor, a module, or a nested dict, list or tuple of tensors, not "
                f"{type(leaf).__name__}{where}"
            )
    return found


def _parameter(leaf: Tensor) -> nn.Parameter:
    """A parameter with the memory of a tensor; a frozen one stays frozen."""
    if not leaf.is_floating_point():
        raise TypeError(f"x0 has dtype {leaf.dtype}; expected float32 or float64")
    frozen = isinstance(leaf, nn.Parameter) and not leaf.requires_grad
    return nn.Parameter(leaf.detach(), requires_grad=not frozen)


def _checked_value(value: Any) -> Tensor:
    """What the function returned, if that is a real scalar with a graph."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"the function must return a scalar tensor, not {type(value).__name__}: without "
            ".item() or float(), which lose the graph that derivatives come from"
        )
    if value.numel() != 1:
        raise ValueError(
            f"the function must return a scalar, not a tensor of shape {tuple(value.shape)}"
        )
    if not value.is_floating_point():
        raise TypeError(f"the function must return a real floating number, not {value.dtype}")
    if not value.requires_grad:
        raise ValueError(NO_GRAPH)
    return value.reshape(())


# What is computed of it: eagerly, or within a run on CUDA through CUDA graphs


log = logging.getLogger("ksdmin")

# A capture takes about as long as so many eager calls: with fewer of them before it, functions
# whose sets change their size every time would be slower; with more, all others.
RUNS_BEFORE_CAPTURE = 5

Kernel = Callable[[Tensor, Any], Any]


class FunctionKernels:
    """The value, the gradient and the Hessian of a function, eagerly."""

    def __init__(self, function: FlatFunction) -> None:
        self.function = function
        self._twice_differentiable = False  # whether that has been checked

    def run(self, kind: str, x: Tensor, idx: Any, precision: str) -> tuple[Tensor, ...]:
        """("value") the value; ("gradient") the value and the gradient."""
        with self.function.arithmetic(precision):
            return getattr(self, kind)(x, idx)  # type: ignore[no-any-return]

    def product(self, x: Tensor, idx: Any, precision: str) -> Product:
        """The Hessian at x: the gradient's graph is made once, and kept for all products."""
        arithmetic = partial(self.function.arithmetic, precision)
        with arithmetic():
            multiply = self.hessian(x, idx)

        def product(v: Tensor) -> Tensor:
            with arithmetic():
                return multiply(v)

        return product

    def value(self, x: Tensor, idx: Any) -> tuple[Tensor]:
        """The value, without its graph."""
        return (self.function.value(_leaf(x), *idx).detach(),)

    def gradient(self, x: Tensor, idx: Any) -> tuple[Tensor, Tensor]:
        """The value and the gradient."""
        leaf = _leaf(x)
        value = self.function.value(leaf, *idx)
        return value.detach(), self._gradient(value, leaf)

    def hessian(self, x: Tensor, idx: Any) -> Product:
        """The product v -> Hv."""
        leaf = _leaf(x)
        value = self.function.value(leaf, *idx)
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

    def _gradient(self, value: Tensor, leaf: Tensor, **kwargs: Any) -> Tensor:
        g: Tensor | None = self._derivative(value, leaf, **kwargs)
        if g is None:  # the graph is that of other tensors
            raise ValueError(NO_GRAPH)
        return g

    def _derivative(self, y: Tensor, leaf: Tensor, *u: Tensor, **kwargs: Any) -> Any:
        """``torch.autograd.grad`` in the leaf."""
        function = self.function
        pieces = function.split(leaf.detach().requires_grad_()) if function.recomputes else []
        return function.derivatives(pieces, y, *u, of=leaf, **kwargs)[0]


def _leaf(x: Tensor) -> Tensor:
    """A point as the leaf of a new graph; a copy, because the caller may write into x."""
    return x.detach().clone().requires_grad_()


class FunctionGraphs(FunctionKernels):
    """The same through CUDA graphs, for one run: between runs, what a function reads may change.

    Kernels that are called often enough are captured, for the whole set and for each number of
    samples. If that fails (the function reads values on the host, say) they run eagerly.
    """

    def __init__(self, function: FlatFunction) -> None:
        super().__init__(function)
        self._runs: Counter[tuple[Any, ...]] = Counter()
        self._captured: dict[tuple[Any, ...], Any] = {}  # least recently used first
        self._works = True

    def run(self, kind: str, x: Tensor, idx: Any, precision: str) -> tuple[Tensor, ...]:
        """As in `FunctionKernels`; the outputs are copies."""
        key = kind, _size(idx), precision
        self._runs[key] += 1
        at_hand = self._at_hand(key, lambda: Graphed(getattr(self, kind), x, *_samples(idx)))
        if at_hand is None:
            return super().run(kind, x, idx, precision)
        with LOCK:
            return tuple(output.clone() for output in at_hand(x, idx))

    def product(self, x: Tensor, idx: Any, precision: str) -> Product:
        """As that of the kernels."""
        key = "hessian", _size(idx), precision
        at_hand = self._at_hand(key, lambda: GraphedProduct(self.hessian, x, *_samples(idx)))
        if at_hand is None:
            eager = super().product(x, idx, precision)

            def counted(v: Tensor) -> Tensor:
                self._runs[key] += 1
                return eager(v)

            return counted
        point, owner = x.clone(), object()

        def product(v: Tensor) -> Tensor:
            with LOCK:
                if at_hand.owner is not owner:
                    at_hand.set_up(point, idx)
                    at_hand.owner = owner
                return at_hand(v).clone()  # type: ignore[no-any-return]

        return product

    def _at_hand(self, key: tuple[Any, ...], capture: Callable[[], Any]) -> Any:
        """The graph for a key, captured now if necessary; None: it runs eagerly."""
        kind, size, precision = key
        if not self._works or size is None or self._runs[key] <= RUNS_BEFORE_CAPTURE:
            return None
        found = self._captured.pop(key, None)
        if found is None:
            drop_oldest(self._captured, kind)
            try:
                with self.function.arithmetic(precision):
                    found = capture()
            except RuntimeError as error:
                log.warning("ksdmin: no CUDA graphs for this function, it runs eagerly: %s", error)
                self._works, self._captured = False, {}
                return None
        self._captured[key] = found
        return found


class FunctionSums(Sums):
    """A function as a sum of one term: the mean over a set is its own."""

    def __init__(
        self,
        function: FlatFunction,
        sampled: bool,  # whether it takes a set of samples
        graphs: bool,  # whether a run tries CUDA graphs
    ) -> None:
        self._function, self._sampled, self._graphs = function, sampled, graphs
        self._executor = FunctionKernels(function)

    def for_run(self) -> FunctionSums:
        """The same for a run, or for the next step of one: a run has graphs of its own."""
        if not self._graphs or isinstance(self._executor, FunctionGraphs):
            return self
        return changed(self, _executor=FunctionGraphs(self._function))

    def indices(self, idx: Any) -> Any:
        """Any set; for a function without samples, the whole."""
        if not self._sampled and not (isinstance(idx, slice) and idx == WHOLE):
            raise ValueError(
                "a function of the parameters alone was asked for some samples only: give "
                "subsets= to from_torch, and the function an argument idx"
            )
        return idx

    def arguments(self, idx: Any) -> tuple[Any, ...]:
        """What the function gets besides the parameters: a set of samples, or nothing."""
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
        # Graphs belong to a run and to a process.
        return {**self.__dict__, "_executor": FunctionKernels(self._function)}


def _size(idx: tuple[Any, ...]) -> int | None:
    """The key of a graph for these samples: -1 for everything, None if there is no graph."""
    if not idx or (isinstance(idx[0], slice) and idx[0] == slice(None)):
        return -1
    rows = idx[0]
    plain = isinstance(rows, Tensor) and rows.is_cuda and rows.ndim == 1
    return len(rows) if plain and rows.dtype == torch.int64 else None


def _samples(idx: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """The buffer from which a graph reads the samples, and the samples that it is compared on."""
    return tree_map(lambda rows: rows.clone() if isinstance(rows, Tensor) else rows, idx), idx, idx


class TorchFunctionProblem(TensorProblem):
    """A plain torch function as a problem; made by :func:`ksdmin.from_torch` with `x0`.

    Attributes
    ----------
    x0 : Tensor
        Where it starts, as one flat vector on its device.
    subsets : Subsets or None
        The samples of a function that takes `idx`.
    """

    _model: FlatFunction

    def __init__(
        self,
        function: FlatFunction,
        subsets: Subsets | None,
        curvature: Any,
        l2: Tensor,
        precond: Any,
        graphs: bool | None,
    ) -> None:
        if isinstance(precond, str):
            precond = None  # a plain function has no gradients of single samples, and no layers
        graphs = function.device.type == "cuda" and graphs is not False
        sums = FunctionSums(function, subsets is not None, graphs)
        super().__init__(function, sums, l2, subsets, Traits(), precond, curvature)
        # x, value and gradient there, and how many other values were computed: see `tried`.
        self._known: list[tuple[Tensor, Tensor, Tensor, int]] = []

    def _noise(self, precision: str) -> float | None:
        """The relative rounding error of values, if it is not that of the dtype."""
        return None if precision == "highest" else VALUE_NOISE[precision]

    def check_is_double(self) -> None:
        """Raise for a function that fails in float64, or computes in less."""
        idx = self._whole
        if idx is None:
            raise ValueError("subsets: your own sets do not name the whole one")
        x = self.x0.clone().requires_grad_()
        with torch.enable_grad():
            value = self._model.value(x, *self._sums.arguments(self._sums.indices(idx)))
        if value.dtype != torch.float64:
            raise TypeError(f"it returns {value.dtype}")
        _, g = self.value_and_gradient(self.x0, idx)
        self.curvature(self.x0, idx)(g)

    def unflatten(self, x: Any) -> Any:
        """A flat vector (also one of numpy) in the form of x0; for a module, {name: tensor}."""
        return self._model.unflatten(self._to_device(x).detach().clone())

    def _checked(self, x: Any, idx: Any) -> tuple[Tensor, Any]:
        self._check_point(x)
        return x, self._sums.indices(idx)

    def _evaluate(self, x: Tensor, idx: Any, diagonal: bool) -> tuple[Any, ...]:
        if self._known:
            at, value, g, spent = self._known.pop()
            self._counts.nfev += spent
            if idx is self._whole and torch.equal(at, x):
                self._counts.add(nfev=1, njev=1)
                return (value, g, self._user_diagonal(x, idx)) if diagonal else (value, g)
        return super()._evaluate(x, idx, diagonal)

    @property
    def _whole(self) -> Any:
        return WHOLE if self.subsets is None else self.subsets.full


def tried(
    fun: Callable[..., Any],
    x0: Tensor,
    subsets: Subsets | None,
    whole: Any,
    precond: Any,
    bounded: bool,
) -> TorchFunctionProblem | None:
    """The problem of a function that ``minimize`` got without derivatives; None if it has no graph.

    It is called at x0 on the whole set, which the run's first evaluation uses, and without bounds
    at two points near it, to check that no part of x was detached.
    """
    function = FlatFunction(fun, x0)
    no_l2 = x0.new_zeros(())
    problem = TorchFunctionProblem(function, subsets, None, no_l2, precond, None)
    value, g = problem._means_of("gradient", *problem._checked(x0, whole))
    if not bounded and not is_gradient(problem, x0, g, whole):
        return None
    problem._known.append((x0.clone(), value, g, 0 if bounded else 2))
    return problem

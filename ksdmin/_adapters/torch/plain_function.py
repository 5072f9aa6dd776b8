"""A plain torch function as a problem over one flat vector: exact derivatives by autodiff."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn

from ksdmin._adapters.flat_problem import VALUE_NOISE
from ksdmin._adapters.torch.flat_model import FlatModel
from ksdmin._adapters.torch.kernels import Product
from ksdmin._adapters.torch.problem import FINER_PRECISION, TensorProblem, as_product
from ksdmin._problem.arrays import as_vector
from ksdmin._problem.protocol import Traits
from ksdmin._problem.subsets import WHOLE, Subsets
from ksdmin._problem.values import changed

CALLED_AS = (
    "with subsets=, the function is called as fun(theta, idx), the mean over the samples idx: "
    "slice(None) or a sorted int64 tensor of rows, or what your own subsets hold"
)

NO_GRAPH = (
    "the function's value does not depend on x0's tensors, as far as autograd knows: use the "
    "argument (theta) in it, and neither .detach(), .item(), numpy nor torch.no_grad()"
)


# Of |g|: by more a difference along one direction must not contradict the gradient. Curvature and
# rounding make far less of it.
MAX_SLOPE_ERROR = 1e-2


class TorchFunctionProblem(TensorProblem):
    """A plain torch function as a problem; made by :func:`ksdmin.from_torch` with `x0`.

    Attributes
    ----------
    x0 : Tensor
        Where it starts, as one flat vector on its device.
    subsets : Subsets or None
        The samples of a function that takes `idx`.
    """

    def __init__(
        self,
        function: FlatFunction,
        subsets: Subsets | None,
        curvature: Any = None,
        l2: Tensor | None = None,
        precond: Any = None,
    ) -> None:
        traits = Traits(
            noise=_noise(function.precision, function.x0.dtype),
            has_projected_gradient=True,
            has_finer_arithmetic=True,
        )
        if isinstance(precond, str) and precond == "fisher":
            precond = None  # a plain function has no gradients of single samples
        super().__init__(function.x0, subsets, traits, precond)
        self._function, self._curvature = function, curvature
        self._l2 = l2 if l2 is not None and bool(l2.any()) else None
        self._precision = function.precision, function.precision  # as in FINER_PRECISION
        # x, value and gradient there, and how many other values were computed: see `tried`.
        self._known: list[tuple[Tensor, Tensor, Tensor, int]] = []

    def in_finer_arithmetic(self) -> Self | None:
        """The same with less rounding; None where there is none."""
        finer = FINER_PRECISION.get(self._precision)
        if self.x0.dtype != torch.float32 or finer is None:
            return None
        traits = replace(self.traits, noise=_noise(finer[0], self.x0.dtype))
        return changed(self, _precision=finer, traits=traits)

    def load(self, x: Any) -> None:
        """Write a flat vector (a tensor, or a numpy array) back into what was given as x0.

        It becomes ``problem.x0`` too: the next run starts there.
        """
        x = self._to_device(x).detach().clone()
        self._function.load(x)
        self.x0 = x

    def unflatten(self, x: Any) -> Any:
        """A flat vector (also one of numpy) in the form of x0; for a module, {name: tensor}."""
        return self._function.unflatten(self._to_device(x).detach().clone())

    def _value(self, x: Tensor, idx: Any) -> Tensor:
        """The function's value, and the penalty's."""
        leaf = self._leaf(x)
        self._counts.nfev += 1
        with self._function.arithmetic(self._precision[0]):
            value = self._call(leaf, idx)
        return self._penalized(value.detach(), leaf)

    def curvature(self, x: Tensor, idx: Any = WHOLE) -> Product:
        """The product v -> Hv: the gradient's graph is made once, and kept for all products."""
        if callable(self._curvature):
            return self._counted(self._with_l2(as_product(self._curvature(x, idx), like=self.x0)))
        leaf = self._leaf(x)
        with self._function.arithmetic(self._precision[1]):
            value = self._call(leaf, idx)
            g = _gradient(value, leaf, keep_graph=True)
        return self._counted(self._with_l2(partial(self._multiply, g, leaf)))

    def _multiply(self, g: Tensor, leaf: Tensor, v: Tensor) -> Tensor:
        if not g.requires_grad:  # a function that is linear in its parameters
            return torch.zeros_like(v)
        with self._function.arithmetic(self._precision[1]):
            return torch.autograd.grad(
                g, leaf, v, retain_graph=True, allow_unused=True, materialize_grads=True
            )[0]

    def _with_l2(self, product: Product) -> Product:
        l2 = self._l2
        return product if l2 is None else lambda v: torch.addcmul(product(v), l2, v)

    def _means(self, kind: str, x: Tensor, idx: Any) -> tuple[Any, ...]:
        if self._known:
            at, *known, spent = self._known.pop()
            self._counts.nfev += spent
            if idx is self._whole and torch.equal(at, x):
                return tuple(known)
        leaf = self._leaf(x)
        with self._function.arithmetic(self._precision[0]):
            value = self._call(leaf, idx)
            g = _gradient(value, leaf)
        if self._l2 is not None:
            g = torch.addcmul(g, self._l2, leaf.detach())
        return self._penalized(value.detach(), leaf), g

    @property
    def _whole(self) -> Any:
        return WHOLE if self.subsets is None else self.subsets.full

    def _penalized(self, value: Tensor, leaf: Tensor) -> Tensor:
        """The value in float64, with the penalty."""
        value = value.to(torch.float64)
        if self._l2 is None:
            return value
        norm: Tensor = torch.linalg.vector_norm(leaf.detach() * self._l2.sqrt(), dtype=value.dtype)
        return value + norm.square() / 2

    def _leaf(self, x: Any) -> Tensor:
        """A point, as a leaf of a new graph: a copy, as the caller may write into x."""
        self._check_point(x)
        leaf: Tensor = x.detach().clone().requires_grad_()
        return leaf

    def _call(self, leaf: Tensor, idx: Any) -> Tensor:
        """The function's value, a scalar with a graph."""
        if self.subsets is not None:
            return self._function.value(leaf, idx)
        if not (isinstance(idx, slice) and idx == WHOLE):
            raise ValueError(
                "a function of the parameters alone was asked for some samples only: give "
                "subsets= to from_torch, and the function an argument idx"
            )
        return self._function.value(leaf)


class FlatFunction(FlatModel):
    """A function of tensors as one of a flat vector.

    Parameters
    ----------
    fun : callable
        ``fun(theta)`` or ``fun(theta, idx)``.
    x0 : Tensor, module, or nested dict, list or tuple of tensors
        What `theta` looks like. Parameters that require no gradient stay as they are.
    precision : {"highest", "high", "bfloat16"}
        As in :class:`FlatModel`.
    """

    def __init__(self, fun: Callable[..., Any], x0: Any, precision: str = "highest") -> None:
        self._fun, self._holder = fun, _Holder(x0)
        super().__init__(self._holder, None, precision)
        if not self.x0.numel():
            raise ValueError("x0 is empty: there is nothing to minimise over")

    def value(self, x: Tensor, *idx: Any) -> Tensor:
        """The value at a vector that requires a gradient; checked to be a scalar with a graph."""
        try:
            value = self._call(x, *idx)
        except (TypeError, IndexError, KeyError) as error:  # it may not know of idx
            if idx:
                with suppress(Exception):  # an exception may refuse it
                    error.add_note(CALLED_AS)
            raise
        return _checked_value(value)

    def _call(self, x: Tensor, *idx: Any) -> Any:
        if self._holder.module is None:
            return self._fun(self.unflatten(x), *idx)
        named = dict(zip(self._names, self.split(x), strict=True))
        return torch.func.functional_call(self._holder, named, (self._fun, *idx))

    def unflatten(self, x: Tensor) -> Any:
        """A vector in the form of x0."""
        return self._holder.rebuilt(dict(zip(self._names, self.split(x), strict=True)))

    def slices(self) -> dict[str, slice]:
        """The slice of the flat vector that each tensor takes, by its path in x0."""
        return {self._holder.paths[name]: part for name, part in super().slices().items()}


class _Holder(nn.Module):
    """Holds x0: a module, whose parameters functional_call can swap, or tensors as parameters.

    These share the memory of the tensors: what is copied into them arrives there.
    """

    def __init__(self, x0: Any) -> None:
        super().__init__()
        self.module = x0 if isinstance(x0, nn.Module) else None
        self.form: Any = None
        if isinstance(x0, nn.Module):
            names = [name for name, _ in x0.named_parameters()]
            self.paths = {f"module.{name}": name for name in names}
            return
        self.form = _as_form(x0)
        leaves = list(_leaves(self.form))
        if len({id(leaf) for _, leaf in leaves}) < len(leaves):
            raise ValueError("x0 holds the same tensor twice: give it once, and use it twice")
        self.tensors = nn.ParameterList([_parameter(leaf) for _, leaf in leaves])
        self.paths = {f"tensors.{i}": path for i, (path, _) in enumerate(leaves)}

    def forward(self, fun: Callable[..., Any], *idx: Any) -> Any:
        """Call `fun` with the module, while other parameters are in place."""
        return fun(self.module, *idx)

    def rebuilt(self, tensors: Mapping[str, Tensor]) -> Any:
        """The form of x0 with these tensors."""
        if self.module is not None:
            return {self.paths[name]: tensor for name, tensor in tensors.items()}
        own = {f"tensors.{i}": tensor.detach() for i, tensor in enumerate(self.tensors)}
        return filled(self.form, iter((own | dict(tensors)).values()))


def _as_form(x0: Any) -> Any:
    """`x0`, where an iterator such as ``net.parameters()`` has become a list."""
    if isinstance(x0, (Tensor, Mapping, list, tuple, str)) or not isinstance(x0, Iterable):
        return x0
    return x0 if hasattr(x0, "dtype") else list(x0)


def _leaves(form: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors of a nested form, each with its path, such as ``layer.0``."""
    if isinstance(form, (Mapping, list, tuple)):
        items = form.items() if isinstance(form, Mapping) else enumerate(form)
        for key, part in items:
            yield from _leaves(part, f"{path}.{key}" if path else str(key))
        return
    if not isinstance(form, Tensor):
        where = f" at {path!r}" if path else ""
        raise TypeError(
            "x0: expected a tensor, a module, or a nested dict, list or tuple of tensors, not "
            f"{type(form).__name__}{where}"
        )
    yield path, form


def filled(form: Any, tensors: Iterator[Any]) -> Any:
    """The nested form, with other tensors in the same order."""
    if isinstance(form, Mapping):
        return {key: filled(part, tensors) for key, part in form.items()}
    if isinstance(form, (list, tuple)):
        parts = [filled(part, tensors) for part in form]
        if isinstance(form, list):
            return parts
        return type(form)(*parts) if hasattr(form, "_fields") else tuple(parts)
    return next(tensors)


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


def _gradient(value: Tensor, leaf: Tensor, *, keep_graph: bool = False) -> Tensor:
    (g,) = torch.autograd.grad(value, leaf, create_graph=keep_graph, allow_unused=True)
    if g is None:  # the graph is that of other tensors
        raise ValueError(NO_GRAPH)
    return g


def _noise(precision: str, dtype: torch.dtype) -> float | None:
    """The relative rounding error of values, where it is not that of the dtype."""
    coarse = dtype == torch.float32 and precision != "highest"
    return VALUE_NOISE[precision] if coarse else None


def _is_gradient(problem: TorchFunctionProblem, x0: Tensor, g: Tensor) -> bool:
    """Whether `g` agrees with a central difference along one direction.

    Where a function detaches a part of x (``x.sum().item()`` in one term), it does not.
    """
    eps = torch.finfo(x0.dtype).eps
    h = eps ** (1 / 3) * max(1.0, float(torch.linalg.vector_norm(x0)))
    u = torch.randn(x0.shape, generator=torch.Generator().manual_seed(0), dtype=x0.dtype)
    u = (u / torch.linalg.vector_norm(u)).to(x0.device)
    above, below = (problem.value(x0 + step * u, problem._whole) for step in (h, -h))
    error = abs((above - below) / (2 * h) - float(g @ u))
    rounding = 100 * eps * max(abs(above), abs(below)) / h
    return not error > MAX_SLOPE_ERROR * float(torch.linalg.vector_norm(g)) + rounding


def tried(
    fun: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...],
    subsets: Subsets | None,
    precond: Any,
    bounded: bool,
) -> TorchFunctionProblem | None:
    """The problem of a function that ``minimize`` got without derivatives; None if it has no graph.

    It is called at x0 on the whole set, which the run's first evaluation uses, and without bounds
    at two points beside it, to see that no part of x was detached on the way.
    """
    x0 = as_vector(x0)

    def with_args(theta: Tensor, *idx: Any) -> Any:
        return fun(theta, *idx, *args)

    problem = TorchFunctionProblem(FlatFunction(with_args, x0), subsets, precond=precond)
    if problem._whole is None:  # the user's own sets, which do not name it
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as that of float(x), if x requires a gradient
            value, g = problem._means("gradient", x0, problem._whole)
            if not bounded and not _is_gradient(problem, x0, g):
                return None
    except Exception:  # whatever it is, differences will show it, if they meet it too
        return None
    problem._known.append((x0.clone(), value, g, 0 if bounded else 2))
    return problem

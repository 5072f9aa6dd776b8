"""A plain torch function as a problem over one flat vector: exact derivatives by autodiff."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor

from ksdmin._adapters.flat_problem import VALUE_NOISE
from ksdmin._adapters.names import Names
from ksdmin._adapters.torch.flat_function import FlatFunction
from ksdmin._adapters.torch.function_kernels import Executor, FunctionGraphs, FunctionKernels
from ksdmin._adapters.torch.kernels import Product
from ksdmin._adapters.torch.names import names_of
from ksdmin._adapters.torch.problem import FINER_PRECISION, TensorProblem, as_product
from ksdmin._problem.counting import Counts
from ksdmin._problem.protocol import Traits
from ksdmin._problem.subsets import WHOLE, Subsets
from ksdmin._problem.user_values import as_vector
from ksdmin._problem.values import changed

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
        graphs: bool | None = None,
    ) -> None:
        traits = Traits(
            noise=_noise(function.precision, function.x0.dtype),
            has_projected_gradient=True,
            has_finer_arithmetic=True,
        )
        if isinstance(precond, str):
            precond = None  # a plain function has no gradients of single samples, and no layers
        super().__init__(function.x0, subsets, traits, precond)
        self._function, self._curvature = function, curvature
        self._executor: Executor = FunctionKernels(function)
        self._graphs = function.device.type == "cuda" and graphs is not False
        self._l2 = l2 if l2 is not None and bool(l2.any()) else None
        self._precision = function.precision, function.precision  # as in FINER_PRECISION
        # x, value and gradient there, and how many other values were computed: see `tried`.
        self._known: list[tuple[Tensor, Tensor, Tensor, int]] = []

    def in_finer_arithmetic(self) -> Any:
        """The same with less rounding, float64 in the end; None where there is none."""
        finer = FINER_PRECISION.get(self._precision)
        if self.x0.dtype != torch.float32 or finer is None:
            return self.in_double()
        traits = replace(self.traits, noise=_noise(finer[0], self.x0.dtype))
        return changed(self, _precision=finer, traits=traits)

    def check_is_double(self) -> None:
        """Refuse a function that fails in float64, or computes in less than that."""
        idx = self._whole
        if idx is None:
            raise ValueError("subsets: your own sets do not name the whole one")
        x = self.x0.clone().requires_grad_()
        with torch.enable_grad():
            value = self._function.value(x, *self._arguments(idx))
        if value.dtype != torch.float64:
            raise TypeError(f"it returns {value.dtype}")
        _, g = self._means("gradient", self.x0, idx)
        self.curvature(self.x0, idx)(g)

    def counting(self, counts: Counts) -> Self:
        """A copy that counts in `counts`: of the problem for a run, or of that for its next step.

        A run has graphs of its own, and its steps share them.
        """
        copy = super().counting(counts)
        if self._graphs and isinstance(self._executor, FunctionKernels):
            copy._executor = FunctionGraphs(self._executor)
        return copy

    def load(self, x: Any) -> None:
        """Write a flat vector (a tensor, or a numpy array) back into what was given as x0.

        It becomes ``problem.x0`` too: the next run starts there.
        """
        self._function.load(self._unrounded(x))
        self.x0 = self._to_device(x).detach().clone()

    def unflatten(self, x: Any) -> Any:
        """A flat vector (also one of numpy) in the form of x0; for a module, {name: tensor}."""
        return self._function.unflatten(self._to_device(x).detach().clone())

    def _names(self) -> Names:
        return names_of(self._function)

    def _value(self, x: Tensor, idx: Any) -> Tensor:
        """The function's value, and the penalty's."""
        self._check_point(x)
        self._counts.nfev += 1
        (value,) = self._executor.run("value", x, self._arguments(idx), self._precision[0])
        return self._penalized(value, x)

    def curvature(self, x: Tensor, idx: Any = WHOLE) -> Product:
        """The product v -> Hv: what all products share is computed once."""
        if callable(self._curvature):
            return self._counted(self._with_l2(as_product(self._curvature(x, idx), like=self.x0)))
        self._check_point(x)
        product = self._executor.product(x, self._arguments(idx), self._precision[1])
        return self._counted(self._with_l2(product))

    def _with_l2(self, product: Product) -> Product:
        l2 = self._l2
        return product if l2 is None else lambda v: torch.addcmul(product(v), l2, v)

    def _means(self, kind: str, x: Tensor, idx: Any) -> tuple[Any, ...]:
        if self._known:
            at, *known, spent = self._known.pop()
            self._counts.nfev += spent
            if idx is self._whole and torch.equal(at, x):
                return tuple(known)
        self._check_point(x)
        value, g = self._executor.run("gradient", x, self._arguments(idx), self._precision[0])
        if self._l2 is not None:
            g = torch.addcmul(g, self._l2, x)
        return self._penalized(value, x), g

    @property
    def _whole(self) -> Any:
        return WHOLE if self.subsets is None else self.subsets.full

    def _penalized(self, value: Tensor, x: Tensor) -> Tensor:
        """The value in float64, with the penalty."""
        value = value.to(torch.float64)
        if self._l2 is None:
            return value
        norm: Tensor = torch.linalg.vector_norm(x * self._l2.sqrt(), dtype=value.dtype)
        return value + norm.square() / 2

    def _arguments(self, idx: Any) -> tuple[Any, ...]:
        """What the function gets beside the parameters: a set of samples, or nothing."""
        if self.subsets is not None:
            return (idx,)
        if not (isinstance(idx, slice) and idx == WHOLE):
            raise ValueError(
                "a function of the parameters alone was asked for some samples only: give "
                "subsets= to from_torch, and the function an argument idx"
            )
        return ()

    def __getstate__(self) -> dict[str, Any]:
        # Graphs belong to a run, and to a process.
        return {**super().__getstate__(), "_executor": FunctionKernels(self._function)}


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

"""A plain torch function as a problem over one flat vector: exact derivatives by autodiff."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ksdmin._adapters.flat_problem import VALUE_NOISE
from ksdmin._adapters.names import Names
from ksdmin._adapters.torch.flat_function import FlatFunction
from ksdmin._adapters.torch.flat_model import names_of
from ksdmin._adapters.torch.function_kernels import FunctionSums
from ksdmin._adapters.torch.problem import TensorMeans, TensorProblem
from ksdmin._problem.protocol import Traits
from ksdmin._problem.subsets import WHOLE, Subsets
from ksdmin._problem.user_values import as_vector

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
        if isinstance(precond, str):
            precond = None  # a plain function has no gradients of single samples, and no layers
        noise = self._noise(function.precision) if function.x0.dtype == torch.float32 else None
        traits = Traits(noise=noise, has_projected_gradient=True)
        graphs = function.device.type == "cuda" and graphs is not False
        sums = FunctionSums(function, subsets is not None, graphs)
        means = TensorMeans(function.x0.new_zeros(()) if l2 is None else l2)
        super().__init__(sums, means, function.x0, subsets, traits, precond, curvature)
        self._function = function
        self._precision = function.precision, function.precision  # as in FINER_PRECISION
        # x, value and gradient there, and how many other values were computed: see `tried`.
        self._known: list[tuple[Tensor, Tensor, Tensor, int]] = []

    def _noise(self, precision: str) -> float | None:
        """The relative rounding error of values, where it is not that of the dtype."""
        return None if precision == "highest" else VALUE_NOISE[precision]

    def check_is_double(self) -> None:
        """Refuse a function that fails in float64, or computes in less than that."""
        idx = self._whole
        if idx is None:
            raise ValueError("subsets: your own sets do not name the whole one")
        x = self.x0.clone().requires_grad_()
        with torch.enable_grad():
            value = self._function.value(x, *self._sums.arguments(self._sums.indices(idx)))
        if value.dtype != torch.float64:
            raise TypeError(f"it returns {value.dtype}")
        _, g = self.value_and_gradient(self.x0, idx)
        self.curvature(self.x0, idx)(g)

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
            value, g = problem._means_of("gradient", *problem._checked(x0, problem._whole))
            if not bounded and not _is_gradient(problem, x0, g):
                return None
    except Exception:  # whatever it is, differences will show it, if they meet it too
        return None
    problem._known.append((x0.clone(), value, g, 0 if bounded else 2))
    return problem

"""A torch module, a loss and data as a problem over one flat vector."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import issparse
from scipy.sparse.linalg import LinearOperator
from torch import Tensor

from ksdmin._adapters.flat_problem import DIAGONAL_SAMPLES, VALUE_NOISE, FlatProblem
from ksdmin._adapters.names import Names
from ksdmin._adapters.torch.batch_norm import FEWEST_SAMPLES, STATISTICS_SAMPLES
from ksdmin._adapters.torch.costs import Costs
from ksdmin._adapters.torch.flat_model import LOCK, FlatModel
from ksdmin._adapters.torch.jacobian import JacobianRows, scaled_slopes
from ksdmin._adapters.torch.kernels import Product
from ksdmin._adapters.torch.matrix import MatrixKernel
from ksdmin._adapters.torch.memory import chunk_budget
from ksdmin._adapters.torch.names import names_of
from ksdmin._adapters.torch.sample_sums import SampleSums
from ksdmin._problem.arrays import rounded_like, to_host
from ksdmin._problem.counting import Counts
from ksdmin._problem.kronecker import Block, Factors, entry_count
from ksdmin._problem.protocol import Jacobian, Traits
from ksdmin._problem.subsets import WHOLE
from ksdmin._problem.values import changed

# Kronecker factors are estimated from so many samples at most: they need not be more exact.
MAX_FACTOR_SAMPLES = 1000
# What a run turns to when rounding hides the gain of its steps: the precision of values and
# gradients, and that of curvature products, which need not be as exact.
FINER_PRECISION = {
    ("bfloat16", "bfloat16"): ("high", "high"),
    ("high", "high"): ("highest", "high"),
}


def refuse_inference_mode() -> None:
    """Nothing that is computed under torch.inference_mode has derivatives."""
    if torch.is_inference_mode_enabled():
        raise RuntimeError(
            "torch.inference_mode() is on, and what is computed in it has no derivatives: call "
            "ksdmin outside of it. (torch.no_grad() does no harm.)"
        )


def refuse_autocast(device: torch.device, instead: str) -> None:
    """Under torch.autocast the vectors of a run would be rounded, too."""
    if torch.is_autocast_enabled(device.type):
        raise RuntimeError(
            "torch.autocast is on, and would round the vectors of a run to half precision: call "
            f"ksdmin outside of it, {instead}"
        )


class TensorProblem(FlatProblem):
    """What models and plain functions of torch share: points are tensors, transfers are few."""

    def counting(self, counts: Counts) -> Self:
        """A copy that counts in `counts`."""
        refuse_inference_mode()
        refuse_autocast(self.x0.device, "and pass precision='bfloat16' to from_torch")
        return super().counting(counts)

    def value_and_projected_gradient(
        self, x: Tensor, idx: Any, V: Tensor
    ) -> tuple[float, npt.NDArray[np.float64]]:
        """The value and V^T g, fetched in one transfer."""
        value, g = self._evaluate(x, idx, False)
        both = torch.cat([value[None], (V @ g).to(torch.float64)]).cpu().numpy()
        return float(both[0]), both[1:]

    def _unrounded(self, x: Any) -> Tensor:
        """A vector of any kind as a tensor on the device, in a dtype of its own."""
        self._check_shape(x)
        x = np.asarray(x, dtype=float) if isinstance(x, (list, tuple)) else x
        tensor = x.detach() if isinstance(x, Tensor) else torch.from_numpy(to_host(x))
        wrong = int((~torch.isfinite(tensor)).sum())
        if wrong:
            raise ValueError(
                f"load: {wrong} of the {len(tensor)} entries of x are NaN or infinite; the "
                "parameters stay as they are"
            )
        return tensor.to(self.x0.device)

    def _check_point(self, x: Any) -> None:
        """Refuse what is not a tensor like x0."""
        if not isinstance(x, Tensor) or x.dtype != self.x0.dtype or x.device != self.x0.device:
            dtype, device = getattr(x, "dtype", ""), getattr(x, "device", "")
            raise TypeError(
                f"x must be a tensor of {self.x0.dtype} on {self.x0.device}, as problem.x0 is, not "
                f"a {type(x).__name__} {dtype} {device}".rstrip()
            )
        self._check_shape(x)


class TorchProblem(TensorProblem):
    """A torch model as a problem; made by :func:`ksdmin.from_torch`.

    Attributes
    ----------
    x0 : Tensor
        The model's own parameters, as one flat vector on its device: those it had when the
        problem was made, or the last ones that `load` has written into it.
    subsets : Subsets
        As many samples as there are data; or the sets of a function of the epoch.
    bytes_per_sample : int
        What a forward pass keeps of a sample for the backward pass.
    """

    def __init__(
        self,
        model: FlatModel,
        sums: SampleSums,
        curvature: Any,
        l2: Tensor,
        precond: Any,
        bytes_per_sample: int,
        nonlinear: bool,
        matrix: MatrixKernel | None,
        rows: JacobianRows | None,
        blocks: tuple[Block, ...] | None,
        costs: Costs,
    ) -> None:
        if callable(curvature):
            matrix = rows = None
        traits = Traits(
            nonlinear=nonlinear,
            noise=VALUE_NOISE[model.precision] if model.x0.dtype == torch.float32 else None,
            has_projected_gradient=True,
            has_matrix=matrix is not None,
            matrix_cost=None if matrix is None else matrix.cost,
            has_jacobian=rows is not None and l2.ndim == 0,
            rows_per_sample=1.0 if rows is None else float(rows.elements),
            matrix_memory=chunk_budget(model.device) if model.x0.is_cuda else None,
            product_cost=costs.product,
            call_cost=costs.call,
            least_set=costs.least_set,
            fewest_samples=FEWEST_SAMPLES if model.batch_norms else 1,
            has_factors=blocks is not None,
            has_finer_arithmetic=True,
        )
        super().__init__(model.x0, sums.samples.subsets, traits, precond)
        self.bytes_per_sample = bytes_per_sample
        self._model, self._sums, self._matrix, self._rows = model, sums, matrix, rows
        self._blocks = blocks
        self._diagonal_limit = sys.maxsize  # of several processes, that of the lowest
        self._curvature, self._l2, self._l2_root = curvature, l2, l2.sqrt()
        self._precision = model.precision, model.precision  # as in FINER_PRECISION
        self._in_a_run = False

    @property
    def is_weighted(self) -> bool:
        """Whether the samples have weights, or ignored labels."""
        return self._sums.samples.is_weighted

    def in_finer_arithmetic(self) -> Any:
        """The same with less rounding, float64 in the end; None where there is none."""
        finer = FINER_PRECISION.get(self._precision)
        if self.traits.noise is None or finer is None:
            return self.in_double()
        traits = replace(self.traits, noise=VALUE_NOISE[finer[0]])
        return changed(self, _precision=finer, traits=traits)

    def counting(self, counts: Counts) -> Self:
        """A copy that counts in `counts`: for a run, or for the next step of one."""
        if not self._in_a_run:
            self._sums.samples.forget()
        return changed(super().counting(counts), _in_a_run=True)

    def load(self, x: Any) -> None:
        """Write a flat vector (a tensor, or a numpy array) back into the model.

        It becomes ``problem.x0``, too: ``minimize(problem)`` then starts there. What is written is
        rounded to the dtype that the model's parameters have by now. BatchNorm in train mode gets
        the running statistics that the data have at `x`.
        """
        with LOCK:
            self._model.load(self._unrounded(x))
            if self._model.batch_norms:
                whole = self._sums.picked(self._sums.samples.indices(WHOLE), STATISTICS_SAMPLES)
                self._sums.take_statistics(whole, self._precision[0])
        self.x0 = self._to_device(x).detach().clone()

    def _names(self) -> Names:
        return names_of(self._model)

    def _value(self, x: Tensor, idx: Any) -> Tensor:
        x, idx = self._checked(x, idx)
        with LOCK:
            self._counts.nfev += 1
            (total,) = self._sums.total("value", x, idx, self._precision[0])
            return self._mean(total, x, idx)

    def curvature(self, x: Tensor, idx: Any = WHOLE) -> Product:
        """The product v -> Hv with the curvature that was asked for."""
        if callable(self._curvature):
            given = as_product(self._curvature(x, idx), like=self.x0)
            return self._counted(lambda v: torch.addcmul(given(v), self._l2, v))
        x, idx = self._checked(x, idx)
        # The caller may write into x
        x, precision = x.clone(), self._precision[1]
        with LOCK:
            product = self._sums.product(x, idx, precision, self._count_forward_pass)
        scale = 1 / self._sums.samples.size(idx)

        def multiply(v: Tensor) -> Tensor:
            with LOCK:
                return (self._l2 * v).add_(product(v), alpha=scale)

        return self._counted(multiply)

    def matrix(self, x: Tensor, idx: Any = WHOLE) -> Tensor:
        """The curvature matrix itself, where the traits say that it is to be had."""
        if self._matrix is None:
            raise ValueError("this problem has no curvature matrix: see traits.has_matrix")
        x, idx = self._checked(x, idx)
        self._counts.nhev += self._matrix.products
        with LOCK:
            H = self._sums.matrix(self._matrix, x, idx, self._precision[1])
        H = H / self._sums.samples.size(idx)
        H.diagonal().add_(self._l2)
        return H

    def factors(self, x: Tensor, idx: Any = WHOLE) -> Factors:
        """Kronecker factors of the curvature, where the traits say that there are any."""
        if self._blocks is None:
            raise ValueError("this problem has no Kronecker factors: see traits.has_factors")
        x, idx = self._checked(x, idx)
        idx = self._sums.picked(idx, MAX_FACTOR_SAMPLES)
        self._counts.add(nfev=2, njev=1)  # labels are drawn by a pass of their own
        with LOCK:
            count = entry_count(self._blocks)
            entries = self._sums.factors(x, idx, self._precision[1], count)
        return Factors(self._blocks, entries / self._sums.samples.size(idx), float(self._l2.mean()))

    def jacobian(self, x: Tensor, idx: Any = WHOLE) -> Jacobian:
        """The curvature as rows, where the traits say that they are to be had."""
        if self._rows is None or not self.traits.has_jacobian:
            raise ValueError("this problem has no Jacobian: see traits.has_jacobian")
        x, idx = self._checked(x, idx)
        kernel, scale = self._rows, self._sums.samples.size(idx) ** -0.5
        with LOCK:
            R, slopes, root = self._sums.jacobian(kernel, x, idx, self._precision[1])
        self._counts.nhev += kernel.products  # not those of rows that have not fitted into memory

        def at(y: Tensor) -> tuple[Tensor, Tensor]:
            self._counts.nfev += 1
            with LOCK:
                total, slopes = self._sums.slopes(kernel, y, idx, self._precision[0])
                return self._mean(total, y, idx), scaled_slopes(slopes, root).mul_(scale)

        residuals = scaled_slopes(slopes, root).mul_(scale)
        return Jacobian(R.mul_(scale), residuals, float(self._l2), at)

    def _evaluate(self, x: Tensor, idx: Any, diagonal: bool) -> tuple[Any, ...]:
        with LOCK:
            x, idx = self._checked(x, idx)
            fisher = diagonal and isinstance(self._precond, str)
            if fisher and self._sums.diagonal is None:  # a preconditioner that changes nothing
                return *super()._evaluate(x, idx, False), torch.ones_like(x)
            return super()._evaluate(x, idx, diagonal)

    def _means(self, kind: str, x: Tensor, idx: Any) -> tuple[Any, ...]:
        total, g, *squares = self._sums.total(kind, x, idx, self._precision[0])
        size = self._sums.samples.size(idx)
        mean = torch.addcmul(g / size, self._l2, x)
        return self._mean(total, x, idx), mean, *(u / size + self._l2 for u in squares)

    def _diagonal_samples(self, idx: Any) -> Any:
        return self._sums.picked(idx, self._max_diagonal_samples)

    @property
    def _max_diagonal_samples(self) -> int:
        """How many samples the diagonal is estimated from: of few, if it takes their gradients."""
        kernel = self._sums.diagonal
        few = kernel is not None and kernel.max_samples is not None
        return min(self._diagonal_limit, DIAGONAL_SAMPLES) if few else self._diagonal_limit

    def _checked(self, x: Any, idx: Any) -> tuple[Tensor, Any]:
        """A point and a set, as the sums take them."""
        if not self._in_a_run:
            x = rounded_like(self.x0, x)
            self._sums.samples.forget()
        self._check_point(x)
        return x.detach(), self._sums.samples.indices(idx)

    def _mean(self, total: Tensor, x: Tensor, idx: Any) -> Tensor:
        norm: Tensor = torch.linalg.vector_norm(x * self._l2_root, dtype=torch.float64)
        return torch.add(total / self._sums.samples.size(idx), norm.square(), alpha=0.5)


def as_product(curvature: Any, like: Tensor) -> Callable[[Tensor], Tensor]:
    """A product, from a callable or from an operator that multiplies by ``@``."""
    if isinstance(curvature, (LinearOperator, np.ndarray)) or issparse(curvature):
        return lambda v: torch.as_tensor(curvature @ v.cpu().numpy()).to(like)
    return curvature if callable(curvature) else lambda v: curvature @ v

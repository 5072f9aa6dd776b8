"""A torch module, a loss and data as a problem over one flat vector."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from scipy.sparse import issparse
from scipy.sparse.linalg import LinearOperator
from torch import Tensor

from ksdmin._adapters.flat_problem import VALUE_NOISE, FlatProblem
from ksdmin._adapters.model_problem import Means, ModelProblem, Sums
from ksdmin._adapters.names import Names
from ksdmin._adapters.torch.flat_model import LOCK, FlatModel, names_of
from ksdmin._adapters.torch.kernels import Kernels, Product
from ksdmin._adapters.torch.matrices import scaled_slopes
from ksdmin._adapters.torch.model_calls import STATISTICS_SAMPLES
from ksdmin._adapters.torch.sums import SampleSums
from ksdmin._problem import differences
from ksdmin._problem.arrays import is_out_of_memory, rounded_like, to_host
from ksdmin._problem.counting import Counts
from ksdmin._problem.kronecker import Factors, entry_count, samples_needed
from ksdmin._problem.protocol import Traits
from ksdmin._problem.subsets import WHOLE
from ksdmin._problem.values import changed

# The next precision when rounding hides the gain of the steps: for values and gradients, and for
# curvature products, which need less accuracy.
FINER_PRECISION = {
    ("bfloat16", "bfloat16"): ("high", "high"),
    ("high", "high"): ("highest", "high"),
}


def refuse_inference_mode() -> None:
    """Raise under torch.inference_mode, where nothing has derivatives."""
    if torch.is_inference_mode_enabled():
        raise RuntimeError(
            "torch.inference_mode() is on, and what is computed in it has no derivatives: call "
            "ksdmin outside of it. (torch.no_grad() does no harm.)"
        )


def refuse_autocast(device: torch.device, instead: str) -> None:
    """Raise under torch.autocast, which would round the vectors of a run, too."""
    if torch.is_autocast_enabled(device.type):
        raise RuntimeError(
            "torch.autocast is on, and would round the vectors of a run to half precision: call "
            f"ksdmin outside of it, {instead}"
        )


class TensorMeans(Means):
    """Means of tensors, in as few operations as possible."""

    def __init__(self, l2: Tensor) -> None:  # one number, or one for each entry
        self.l2 = l2 if bool(l2.any()) else None
        self._root = l2.sqrt()

    def value(self, total: Tensor, size: int, x: Tensor) -> Tensor:
        """The mean loss, in float64."""
        if self.l2 is None:
            return total / size
        norm: Tensor = torch.linalg.vector_norm(x * self._root, dtype=torch.float64)
        return torch.add(total / size, norm.square(), alpha=0.5)

    def gradient(self, total: Tensor, size: int, x: Tensor) -> Tensor:
        return self.own_product(total / size, x)

    def squares(self, total: Tensor, size: int, x: Tensor) -> Tensor:
        return total / size if self.l2 is None else total / size + self.l2

    def product(self, total: Tensor, size: int, v: Tensor) -> Tensor:
        scale = 1 / size
        return total * scale if self.l2 is None else (self.l2 * v).add_(total, alpha=scale)

    def own_product(self, product: Tensor, v: Tensor) -> Tensor:
        return product if self.l2 is None else torch.addcmul(product, self.l2, v)

    def matrix(self, total: Tensor, size: int) -> Tensor:
        H = total / size
        if self.l2 is not None:
            H.diagonal().add_(self.l2)
        return H

    def rows(self, R: Tensor, scale: float) -> Tensor:
        """The rows times a number, in place."""
        return R.mul_(scale)

    def residuals(self, slopes: Tensor, root: Tensor, scale: float) -> Tensor:
        return scaled_slopes(slopes, root).mul_(scale)


class TensorProblem(ModelProblem):
    """What models and plain functions of torch share: points are tensors, transfers are few."""

    lock = LOCK

    def __init__(
        self, model: FlatModel, sums: Sums, l2: Tensor, subsets: Any, traits: Traits, *more: Any
    ) -> None:
        noise = self._noise(model.precision) if model.x0.dtype == torch.float32 else None
        traits = replace(traits, noise=noise, has_projected_gradient=True)
        super().__init__(sums, TensorMeans(l2), model.x0, subsets, traits, *more)
        self._model = model
        self._precision = model.precision, model.precision  # as in FINER_PRECISION

    def load(self, x: Any) -> None:
        """Write a flat vector (a tensor, or a numpy array) back into what was given as x0.

        It becomes ``problem.x0`` too: the next run starts there.
        """
        self._model.load(self._unrounded(x))
        self.x0 = self._to_device(x).detach().clone()

    def _names(self) -> Names:
        return names_of(self._model)

    def counting(self, counts: Counts) -> Self:
        """A copy that counts in `counts`."""
        refuse_inference_mode()
        refuse_autocast(self.x0.device, "and pass precision='bfloat16' to from_torch")
        return super().counting(counts)

    def _finer(self) -> tuple[float | None, dict[str, Any]] | None:
        finer = FINER_PRECISION.get(self._precision)
        if self.x0.dtype != torch.float32 or finer is None:
            return None
        return self._noise(finer[0]), {"_precision": finer}

    def _noise(self, precision: str) -> float | None:
        """The relative rounding error of values of float32."""
        return VALUE_NOISE[precision]

    def _own_product(self, x: Tensor, idx: Any) -> Product:
        return as_product(self._curvature(x, idx), like=self.x0)

    def _unrounded(self, x: Any) -> Tensor:
        """A vector of any library as a tensor on the device, in its own dtype."""
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
        """Raise for anything but a tensor like x0."""
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
        self, kernels: Kernels, sums: SampleSums, l2: Tensor, traits: Traits, *more: Any
    ) -> None:
        super().__init__(kernels.model, sums, l2, sums.samples.subsets, traits, *more)
        self.bytes_per_sample = kernels.bytes_per_sample
        # what the Kronecker factors are of, where there are any
        self._blocks = None if kernels.factors is None else kernels.factors.blocks
        self._in_a_run = False
        # whether curvature products are differences of gradients
        self._by_differences = kernels.by_differences and not callable(self._curvature)
        if self._by_differences:
            accuracy = differences.ERROR_POWER[differences.OF_GRADIENTS]
            self.traits = replace(self.traits, product_accuracy=accuracy)

    def curvature(self, x: Tensor, idx: Any = WHOLE) -> Product:
        if not self._by_differences:
            return super().curvature(x, idx)
        g = self.value_and_gradient(x, idx)[1]
        return differences.product_of_gradients(self, x.clone(), idx, g, self._space)

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
            super().load(x)
            if self._model.batch_norms:
                whole = self._sums.picked(self._sums.samples.indices(WHOLE), STATISTICS_SAMPLES)
                self._sums.take_statistics(whole, self._precision[0])

    def factors(self, x: Tensor, idx: Any = WHOLE) -> Factors:
        """Kronecker factors of the curvature, where the traits say that there are any."""
        if self._blocks is None:
            raise ValueError("this problem has no Kronecker factors: see traits.has_factors")
        x, idx = self._checked(x, idx)
        idx = self._sums.picked(idx, samples_needed(self._blocks))
        self._counts.add(nfev=2, njev=1)  # a separate pass draws labels
        with LOCK:
            count = entry_count(self._blocks)
            own = self._sums.factors(x, idx, self._precision[1], count)
            (entries,) = self.team.joint_parts([own], self._counts)
        l2 = 0.0 if self._means.l2 is None else float(self._means.l2.mean())
        size = self._sums.size(idx)
        return Factors(self._blocks, entries / size, l2, size)

    def _checked(self, x: Any, idx: Any) -> tuple[Tensor, Any]:
        if not self._in_a_run:
            x = rounded_like(self.x0, x)
            self._sums.samples.forget()
        self._check_point(x)
        return x.detach(), self._sums.indices(idx)


def as_product(curvature: Any, like: Tensor) -> Callable[[Tensor], Tensor]:
    """A product, from a callable or from an operator that multiplies by ``@``."""
    if isinstance(curvature, (LinearOperator, np.ndarray)) or issparse(curvature):
        return lambda v: torch.as_tensor(curvature @ v.cpu().numpy()).to(like)
    return curvature if callable(curvature) else lambda v: curvature @ v


# The same problem in float64, for when rounding in float32 hides the steps


class InDouble:
    """Makes the problem in float64, every time it is needed.

    (It is not kept, because buffers and frozen parameters of the module may change between two
    runs.) If a model fails in float64, it is tried once, with a warning.
    """

    def __init__(self, make: Callable[[], FlatProblem]) -> None:
        self._make, self._fails = make, False

    def __call__(self) -> FlatProblem | None:
        """The problem; None if it cannot be made."""
        if self._fails:
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the user has seen these warnings
                return self._make()
        except Exception as error:  # any error of the model
            self._fails = True
            advice = "Tensors that the model makes or captures should have the dtype of its inputs;"
            if is_out_of_memory(error):
                advice = "Its copy needs twice the memory of the model, besides the model itself;"
            warnings.warn(
                "Rounding in float32 hides what further steps gain, but in float64 the model fails "
                f"({type(error).__name__}: {error}), so the run stays in float32. {advice} "
                "precision='float32' in from_torch switches this off.",
                RuntimeWarning,
                stacklevel=2,
            )
            return None

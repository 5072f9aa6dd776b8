"""A torch module, a loss and data as a problem over one flat vector."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import issparse
from scipy.sparse.linalg import LinearOperator
from torch import Tensor, nn

from ksdmin._adapters.curvature import check_provider
from ksdmin._adapters.flat import ENOUGH, FlatProblem, bends
from ksdmin._adapters.torch.checks import (
    check_model,
    check_pass,
    check_values,
    warn_of_squashing,
)
from ksdmin._adapters.torch.data import Samples
from ksdmin._adapters.torch.diagonal import Diagonal
from ksdmin._adapters.torch.engine import Engine
from ksdmin._adapters.torch.kernels import Kernels, Product
from ksdmin._adapters.torch.loss import as_sample_loss
from ksdmin._adapters.torch.memory import bytes_per_sample, default_budget
from ksdmin._adapters.torch.model import FlatModel
from ksdmin._adapters.torch.random import frozen_randomness
from ksdmin._problem.functions import Counts
from ksdmin._problem.subsets import WHOLE, Subsets

# Relative rounding error of a mean loss in float32, by the arithmetic of its matrix products.
NOISE = {"highest": 1e-7, "high": 1e-5, "bfloat16": 1e-3}
# What a run turns to when rounding hides the gain of its steps: the precision of values and
# gradients, and that of curvature products, which need not be as exact.
FINER = {("bfloat16", "bfloat16"): ("high", "high"), ("high", "high"): ("highest", "high")}
FEW = 3  # samples that a model is looked at with
COPIES = 4  # of what a forward pass keeps: the pass that gives J v keeps as much again, and works


class TorchProblem(FlatProblem):
    """A torch model as a problem; made by :func:`ksdmin.from_torch`.

    Attributes
    ----------
    x0 : Tensor
        The model's own parameters, as one flat vector on its device.
    subsets : Subsets
        As many samples as there are data.
    bytes_per_sample : int
        What a forward pass keeps of a sample for the backward pass.
    """

    def __init__(
        self,
        model: FlatModel,
        engine: Engine,
        curvature: Any,
        l2: Tensor,
        precond: Any,
        bytes_per_sample: int,
        enough: int,
    ) -> None:
        noise = NOISE[model.precision] if model.x0.dtype == torch.float32 else None
        super().__init__(model.x0, Subsets(engine.samples.n), noise, precond)
        self.bytes_per_sample = bytes_per_sample
        self._model, self._engine, self._enough = model, engine, enough
        self._curvature, self._l2 = curvature, l2
        self._precision = model.precision, model.precision  # as in FINER

    def sharper(self) -> Self | None:
        """The same in finer arithmetic; None where there is none."""
        finer = FINER.get(self._precision)
        if self.noise is None or finer is None:
            return None
        twin = copy.copy(self)
        twin._precision, twin.noise = finer, NOISE[finer[0]]
        return twin

    def counting(self, counts: Counts) -> Self:
        """A copy for one run, that counts in `counts`."""
        self._model.check_mode()
        return super().counting(counts)

    def load(self, x: Any) -> None:
        """Write a flat vector (a tensor, or a numpy array) back into the model."""
        self._model.load(self._away(x))

    def value(self, x: Tensor, idx: Any = WHOLE) -> float:
        """The mean loss."""
        x, idx = self._where(x, idx)
        self._counts.nfev += 1
        (total,) = self._engine.total("value", x, idx, self._precision[0])
        return float(self._mean(total, x, idx))

    def value_and_projected_gradient(
        self, x: Tensor, idx: Any, V: Tensor
    ) -> tuple[float, npt.NDArray[np.float64]]:
        """The value and V^T g, fetched in one transfer."""
        value, g = self._evaluate(x, idx, False)
        home = torch.cat([value[None], (V @ g).to(torch.float64)]).cpu().numpy()
        return float(home[0]), home[1:]

    def curvature(self, x: Tensor, idx: Any = WHOLE) -> Product:
        """The product v -> Hv with the curvature that was asked for."""
        if callable(self._curvature):
            own = _as_product(self._curvature(x, idx), like=self.x0)
            return self._counted(lambda v: torch.addcmul(own(v), self._l2, v))
        x, idx = self._where(x, idx)
        # The caller may write into x
        product = self._engine.product(x.clone(), idx, self._precision[1], self._forward_again)
        share = 1 / self._engine.samples.size(idx)
        return self._counted(lambda v: (self._l2 * v).add_(product(v), alpha=share))

    def _evaluate(self, x: Tensor, idx: Any, diagonal: bool) -> tuple[Any, ...]:
        return super()._evaluate(*self._where(x, idx), diagonal)

    def _means(self, kind: str, x: Tensor, idx: Any) -> tuple[Any, ...]:
        total, g, *squares = self._engine.total(kind, x, idx, self._precision[0])
        size = self._engine.samples.size(idx)
        mean = torch.addcmul(g / size, self._l2, x)
        return self._mean(total, x, idx), mean, *(u / size + self._l2 for u in squares)

    def _telling(self, idx: Any) -> Any:
        return self._engine.samples.spread(idx, self._enough)

    def _where(self, x: Any, idx: Any) -> tuple[Tensor, Any]:
        """A point and a set, as the engine takes them."""
        if not isinstance(x, Tensor) or x.dtype != self.x0.dtype or x.device != self.x0.device:
            dtype, where = getattr(x, "dtype", ""), getattr(x, "device", "")
            raise TypeError(
                f"x must be a tensor of {self.x0.dtype} on {self.x0.device}, as problem.x0 is, not "
                f"a {type(x).__name__} {dtype} {where}".rstrip()
            )
        if x.shape != self.x0.shape:
            raise ValueError(f"x has shape {tuple(x.shape)}, expected {tuple(self.x0.shape)}")
        return x.detach(), self._engine.samples.indices(idx)

    def _mean(self, total: Tensor, x: Tensor, idx: Any) -> Tensor:
        norm: Tensor = torch.linalg.vector_norm(x * self._l2.sqrt(), dtype=torch.float64)
        return total / self._engine.samples.size(idx) + norm.square() / 2


def build(
    model: nn.Module,
    loss: Any,
    data: Any,
    *,
    curvature: str | Callable[..., Any],
    l2: float | Mapping[str, float],
    precond: Any,
    params: Iterable[str] | None,
    chunk_size: int | None,
    memory_budget: float | None,
    precision: str,
    graphs: bool | None,
    rng: Any,
) -> TorchProblem:
    """The problem of :func:`ksdmin.from_torch`, which has the meaning of the arguments."""
    check_provider(curvature)
    check_model(model)
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size={chunk_size!r}: expected at least one sample")
    flat_model = FlatModel(model, params, precision)
    samples = Samples(data, flat_model.device, flat_model.x0.dtype)
    sample_loss = as_sample_loss(loss)
    if curvature == "fisher" and sample_loss.draw is None:
        raise ValueError(
            "curvature='fisher' draws labels from the model's likelihood, which "
            f"{type(loss).__name__} does not tell: use 'gauss-newton' or 'empirical-fisher'"
        )
    if sample_loss.weigh is not None:
        samples.weigh(sample_loss.weigh)
    kernels = Kernels(flat_model, sample_loss, curvature if isinstance(curvature, str) else "")
    budget = default_budget(flat_model.device) if memory_budget is None else memory_budget
    few = next(samples.chunks(WHOLE, min(FEW, samples.n)))
    with frozen_randomness(0, flat_model.device), flat_model.arithmetic(precision):
        z = check_pass(flat_model, few[0])
        nonlinear = bends(lambda x: flat_model(flat_model.split(x), few[0]), flat_model.x0)
        kept = bytes_per_sample(kernels, few)
        fits = max(1, int(budget // (COPIES * kept)))
        diagonal = Diagonal(kernels, few, budget) if isinstance(precond, str) else None
        kernels.diagonal = diagonal
    if curvature == "gauss-newton":
        warn_of_squashing(z, loss, stacklevel=3)
    most = min(fits, samples.n)
    if flat_model.random and diagonal is not None and diagonal.most is not None:
        most = min(most, diagonal.most)  # its masks are drawn for a whole chunk
    if graphs is None:
        graphs = flat_model.device.type == "cuda"
    engine = Engine(
        kernels,
        samples,
        chunk=int(chunk_size or most),
        resident=fits,
        graphs=graphs,
        seed=int(np.random.default_rng(rng).integers(2**62)),
    )
    weights = _l2_vector(l2, flat_model)
    enough = ENOUGH if diagonal is not None and diagonal.most is not None else samples.n
    problem = TorchProblem(flat_model, engine, curvature, weights, precond, kept, enough)
    problem.nonlinear = nonlinear
    check_values(problem, flat_model)
    return problem


def _l2_vector(l2: float | Mapping[str, float], model: FlatModel) -> Tensor:
    """The weight of each entry's square in the penalty: one number, or one an entry."""
    named = l2 if isinstance(l2, Mapping) else {"": l2}
    if not all(weight >= 0 for weight in named.values()):
        raise ValueError(f"l2={l2!r}: expected numbers that are not negative")
    if not isinstance(l2, Mapping):
        return model.x0.new_tensor(float(l2))
    weights = torch.zeros_like(model.x0)
    for group, weight in l2.items():
        slices = model.group(group)
        if not slices:
            raise ValueError(f"l2: the model has no trainable parameter or module {group!r}")
        for part in slices:
            weights[part] = weight
    return weights


def _as_product(curvature: Any, like: Tensor) -> Callable[[Tensor], Tensor]:
    """A product, from a callable or from an operator that multiplies by ``@``."""
    if isinstance(curvature, (LinearOperator, np.ndarray)) or issparse(curvature):
        return lambda v: torch.as_tensor(curvature @ v.cpu().numpy()).to(like)
    return curvature if callable(curvature) else lambda v: curvature @ v

"""A torch module, a loss and data as a problem over one flat vector."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ksdmin._adapters.torch_checks import check_model, check_repeats
from ksdmin._adapters.torch_data import Samples
from ksdmin._adapters.torch_diagonal import Diagonal
from ksdmin._adapters.torch_engine import Engine
from ksdmin._adapters.torch_kernels import Kernels
from ksdmin._adapters.torch_loss import as_sample_loss
from ksdmin._adapters.torch_memory import bytes_per_sample, default_budget
from ksdmin._adapters.torch_model import FlatModel
from ksdmin._curvature import check_provider
from ksdmin._problem import Counts
from ksdmin._subsets import WHOLE, Subsets

# Relative rounding error of a mean loss in float32, by the arithmetic of its matrix products.
NOISE = {"highest": 1e-7, "high": 1e-5, "bfloat16": 1e-3}
COPIES = 4  # of what a forward pass keeps: the pass that gives J v keeps as much again, and works


class TorchProblem:
    """A torch model as a problem; made by :func:`ksdmin.from_torch`.

    Attributes
    ----------
    x0 : Tensor
        The model's own parameters, as one flat vector on its device.
    subsets : Subsets
        As many samples as there are data.
    """

    has_diagonal = True

    def __init__(self, model: FlatModel, engine: Engine, curvature: Any, l2: Tensor) -> None:
        self.x0 = model.x0
        self.subsets = Subsets(engine.samples.n)
        self.noise = NOISE[model.precision] if model.x0.dtype == torch.float32 else None
        self._model, self._engine = model, engine
        self._curvature, self._l2 = curvature, l2
        self._counts = Counts()

    def counting(self, counts: Counts) -> TorchProblem:
        """A copy for one run, that counts in `counts`."""
        twin = copy.copy(self)
        twin._counts = counts
        return twin

    def load(self, x: Any) -> None:
        """Write a flat vector (a tensor, or a numpy array) back into the model."""
        self._model.load(torch.as_tensor(x, dtype=self.x0.dtype, device=self.x0.device))

    # The verbs

    def value(self, x: Tensor, idx: Any = WHOLE) -> float:
        """The mean loss."""
        self._counts.nfev += 1
        (total,) = self._engine.total("value", x, idx)
        return float(self._mean(total, x, idx))

    def value_and_gradient(self, x: Tensor, idx: Any = WHOLE, *, diagonal: bool = False) -> Any:
        """(value, gradient), or with the diagonal of the empirical Fisher matrix."""
        value, *tall = self._evaluate(x, idx, diagonal)
        return (float(value), *tall)

    def value_and_projected_gradient(
        self, x: Tensor, idx: Any, V: Tensor
    ) -> tuple[float, npt.NDArray[np.float64]]:
        """The value and V^T g, fetched in one transfer."""
        value, g = self._evaluate(x, idx, False)
        home = torch.cat([value[None], (V @ g).to(torch.float64)]).cpu().numpy()
        return float(home[0]), home[1:]

    def curvature(self, x: Tensor, idx: Any = WHOLE) -> Callable[[Tensor], Tensor]:
        """The product v -> Hv with the curvature that was asked for."""
        if callable(self._curvature):
            return self._counted(_as_product(self._curvature(x, idx)), keeps=True)
        product, keeps = self._engine.product(x, idx)
        size = self._engine.samples.size(idx)
        return self._counted(
            lambda v: product(v).div_(size).addcmul_(self._l2, v),
            keeps,  # its result is ours
        )

    def _evaluate(self, x: Tensor, idx: Any, diagonal: bool) -> tuple[Tensor, ...]:
        self._counts.nfev += 1
        self._counts.njev += 1
        total, *sums = self._engine.total("diagonal" if diagonal else "gradient", x, idx)
        size = self._engine.samples.size(idx)
        g = torch.addcmul(sums[0] / size, self._l2, x)
        squares = [sums[1] / size + self._l2] if diagonal else []
        return self._mean(total, x, idx), g, *squares

    def _mean(self, total: Tensor, x: Tensor, idx: Any) -> Tensor:
        norm: Tensor = torch.linalg.vector_norm(x * self._l2.sqrt(), dtype=torch.float64)
        return total / self._engine.samples.size(idx) + norm.square() / 2

    def _counted(
        self, product: Callable[[Tensor], Tensor], keeps: bool
    ) -> Callable[[Tensor], Tensor]:
        def counted(v: Tensor) -> Tensor:
            self._counts.nhev += 1
            self._counts.nfev += not keeps  # the forward pass is made again
            return product(v)

        return counted

    # The same on the whole set, for SciPy's methods: numpy in, numpy out

    def fun(self, x: npt.NDArray[Any]) -> float:
        """The value at a numpy vector."""
        return self.value(self._away(x))

    def jac(self, x: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The gradient at a numpy vector."""
        return self._home(self.value_and_gradient(self._away(x))[1])

    def hessp(self, x: npt.NDArray[Any], p: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The curvature at a numpy vector, times another."""
        return self._home(self.curvature(self._away(x))(self._away(p)))

    def _away(self, x: npt.NDArray[Any]) -> Tensor:
        return torch.as_tensor(x, dtype=self.x0.dtype, device=self.x0.device)

    def _home(self, u: Tensor) -> npt.NDArray[np.float64]:
        return u.to("cpu", torch.float64).numpy()


def build(
    model: nn.Module,
    loss: Any,
    data: Any,
    *,
    curvature: str | Callable[..., Any],
    l2: float | Mapping[str, float],
    params: Iterable[str] | None,
    chunk_size: int | None,
    memory_budget: float | None,
    precision: str,
    graphs: bool | None,
    rng: int,
) -> TorchProblem:
    """The problem of :func:`ksdmin.from_torch`, which has the meaning of the arguments."""
    check_provider(curvature)
    check_model(model, loss)
    flat_model = FlatModel(model, params, precision)
    samples = Samples(data, flat_model.device)
    sample_loss = as_sample_loss(loss)
    if curvature == "fisher" and sample_loss.draw is None:
        raise ValueError(
            "curvature='fisher' draws labels from the model's likelihood, which "
            f"{type(loss).__name__} does not tell: use 'gauss-newton' or 'empirical-fisher'"
        )
    if sample_loss.weigh is not None:
        samples.weigh(sample_loss.weigh)
    kernels = Kernels(flat_model, sample_loss, curvature if isinstance(curvature, str) else "")
    budget = memory_budget or default_budget(flat_model.device)
    few = samples.take(slice(0, min(2, samples.n)))
    fits = max(1, int(budget // (COPIES * bytes_per_sample(kernels, *few))))
    kernels.diagonal = Diagonal(kernels, few[0], max(1, int(budget // flat_model.bytes)))
    if graphs is None:
        graphs = flat_model.device.type == "cuda"
    engine = Engine(
        kernels,
        samples,
        chunk=int(chunk_size or min(fits, samples.n)),
        resident=fits,
        graphs=graphs,
        seed=rng,
    )
    problem = TorchProblem(flat_model, engine, curvature, _l2_vector(l2, flat_model))
    check_repeats(problem, model)
    return problem


def _l2_vector(l2: float | Mapping[str, float], model: FlatModel) -> Tensor:
    """The weight of each entry's square in the penalty: one number, or one an entry."""
    if not isinstance(l2, Mapping):
        return model.x0.new_tensor(float(l2))
    slices = model.slices()
    unknown = [name for name in l2 if name not in slices]
    if unknown:
        raise ValueError(f"l2: the model has no trainable parameter {', '.join(unknown)}")
    weights = torch.zeros_like(model.x0)
    for name, weight in l2.items():
        weights[slices[name]] = weight
    return weights


def _as_product(curvature: Any) -> Callable[[Tensor], Tensor]:
    """A product, from a callable or from an operator that multiplies by ``@``."""
    return curvature if callable(curvature) else lambda v: curvature @ v

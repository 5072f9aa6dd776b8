"""A torch function of a module and some samples, r(model, batch), as a model with outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from ksdmin._adapters.arguments import Block, check_rows
from ksdmin._adapters.curvature import SampleLoss
from ksdmin._adapters.torch.checks import check_forward_pass
from ksdmin._adapters.torch.data.epochs import EpochSamples
from ksdmin._adapters.torch.data.samples import Samples
from ksdmin._adapters.torch.flat_model import FlatModel
from ksdmin._adapters.torch.kernels import Chunk, Kernels
from ksdmin._adapters.torch.losses.known import as_sample_loss
from ksdmin._adapters.torch.model_and_loss import First, first_pass
from ksdmin._adapters.torch.model_calls import row_count
from ksdmin._adapters.torch.modes import seeded_generators


class ResidualModel(FlatModel):
    """The residuals of one block, as outputs of a flat vector.

    Parameters
    ----------
    model : nn.Module
        What the block's function gets; its own forward pass need not be used.
    block : Block
        The function and its samples.
    params, precision
        As in :class:`FlatModel`.
    """

    def __init__(
        self, model: nn.Module, block: Block, params: Iterable[str | Tensor] | None, precision: str
    ) -> None:
        super().__init__(model, params, precision)
        self.block, self._residuals = block, block.residuals
        self.modes.add(block.residuals)
        self._takes_samples = block.data is not None
        # What stands for the one "sample" of a function of none
        self._data = block.data if self._takes_samples else torch.zeros(1)

    def of(self, model: nn.Module) -> ResidualModel:
        """The same residuals of a copy of the module."""
        with self.modes.in_force():  # those of a module that computes the residuals
            return ResidualModel(model, self.block, self._names, "highest")

    def samples(self, memory_budget: float) -> Samples | EpochSamples:
        """The samples of the block: inputs, without targets."""
        make = partial(
            Samples,
            device=self.device,
            dtype=self.x0.dtype,
            split_targets=False,
            memory_budget=memory_budget,
        )
        if callable(self._data) and not isinstance(self._data, Dataset):
            return EpochSamples(self._data, make)
        return make(self._data)

    def outputs(self, parameters: list[Tensor], inputs: Any) -> Tensor:
        """The residuals, one row per sample."""
        batch = (self.own_inputs(inputs),) if self._takes_samples else ()
        r = self.holding(parameters, self._residuals, self.model, *batch)
        if not isinstance(r, Tensor):
            raise TypeError(f"r returned {type(r).__name__}: expected one tensor of residuals")
        check_rows(tuple(r.shape), row_count(inputs) if self._takes_samples else None)
        return r if self._takes_samples else r[None]

    def read(self, outputs: Tensor, inputs: Any) -> Tensor:
        """The residuals, in the dtype of the parameters."""
        return outputs.to(self.x0.dtype)


def residual_kernels(model: ResidualModel, probe: Chunk, curvature: str) -> tuple[Kernels, First]:
    """The computations for a block, and what a first pass has shown.

    What torch cannot differentiate in the parameters is refused.
    """
    with model.arithmetic(model.precision), seeded_generators(0, model.device):
        r, saved = check_forward_pass(model, probe[0])
    if not r.requires_grad:
        raise ValueError(
            "the residuals do not depend on the model's parameters, as far as autograd knows: use "
            "the model that r is given, neither .detach(), .item(), numpy nor torch.no_grad(), and "
            "for derivatives torch.autograd.grad(..., create_graph=True)"
        )
    kernels = Kernels(model, squared_residuals(), curvature)
    return kernels, first_pass(kernels, model.read(r, probe[0]), probe, saved)


def squared_residuals() -> SampleLoss:
    """The mean of the squared residuals of a sample, which has no target."""
    squares = as_sample_loss(nn.MSELoss())
    return replace(squares, losses=partial(_losses, squares.losses))


def _losses(losses: Callable[[Tensor, Tensor], Tensor], z: Tensor, y: Any) -> Tensor:
    """Against zero; or, for "fisher", targets drawn like the residuals."""
    return losses(z, y if isinstance(y, Tensor) else torch.zeros_like(z))

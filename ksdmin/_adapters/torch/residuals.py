"""A torch function of a module and some samples, r(model, batch), as a model with outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from ksdmin._adapters.blocks import Block, check_rows
from ksdmin._adapters.sample_loss import SampleLoss
from ksdmin._adapters.torch.flat_model import LOCK, FlatModel
from ksdmin._adapters.torch.losses import as_sample_loss
from ksdmin._adapters.torch.plain_function import filled


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

    Attributes
    ----------
    data : pair
        The arrays of the block's samples in one tuple, and the targets of the residuals: zeros.
    """

    def __init__(
        self, model: nn.Module, block: Block, params: Iterable[str | Tensor] | None, precision: str
    ) -> None:
        super().__init__(model, params, precision)
        self._residuals, self._holder = block.residuals, _Holder(model)
        self._takes_samples, data = block.data is not None, _plain(block.data)
        self._form = filled(data, repeat(None))  # how tuples and dicts hold the arrays
        arrays: list[Any] = [torch.zeros(1)]  # stands for the one "sample" of a function of none
        if self._takes_samples:
            arrays = list(_arrays(data))
            _check_arrays(arrays)
        zeros = torch.zeros(len(arrays[0]), dtype=self.x0.dtype, device=self.device)
        self.data = tuple(arrays), zeros

    def __call__(self, parameters: list[Tensor], inputs: Any) -> Tensor:
        """The residuals, one row per sample, in the dtype of the parameters."""
        named = {
            f"module.{name}": piece for name, piece in zip(self._names, parameters, strict=True)
        }
        # Without their own flags: a function that differentiates in them sets requires_grad.
        leaves = [leaf.detach() for leaf in inputs]
        batch = (filled(self._form, iter(leaves)),) if self._takes_samples else ()
        with LOCK:
            r = torch.func.functional_call(self._holder, named, (self._residuals, *batch))
        if not isinstance(r, Tensor):
            raise TypeError(f"r returned {type(r).__name__}: expected one tensor of residuals")
        check_rows(tuple(r.shape), len(leaves[0]) if self._takes_samples else None)
        r = r.to(self.x0.dtype)
        return r if self._takes_samples else r[None]

    def checked_residuals(self, inputs: Any) -> Tensor:
        """Those of a few samples; what torch cannot differentiate in the parameters is refused."""
        with self.arithmetic(self.precision), self.restored_randomness():
            r = self(self.leaves(self.x0), inputs)
        if not r.requires_grad:
            raise ValueError(
                "the residuals do not depend on the model's parameters, as far as autograd knows: "
                "use the model that r is given, and neither .detach(), .item(), numpy nor "
                "torch.no_grad()"
            )
        return r


class _Holder(nn.Module):
    """Lets functional_call swap the parameters of a module for the time of another function."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, function: Callable[..., Any], *batch: Any) -> Any:
        """Call a function with the module."""
        return function(self.module, *batch)


def squared_residuals() -> SampleLoss:
    """The mean of the squared residuals of a sample; its targets are zeros, one per sample."""
    squares = as_sample_loss(nn.MSELoss())
    return replace(squares, losses=partial(_losses, squares.losses))


def _losses(losses: Callable[[Tensor, Tensor], Tensor], z: Tensor, y: Tensor) -> Tensor:
    """Against the zeros of the samples; or, for "fisher", targets drawn like the residuals."""
    if y.shape != z.shape:
        y = y.reshape((-1,) + (1,) * (z.ndim - 1)).expand_as(z)
    return losses(z, y)


def _plain(data: Any) -> Any:
    return tuple(data.tensors) if isinstance(data, TensorDataset) else data


def _arrays(data: Any) -> Iterator[Any]:
    """The arrays in nested tuples, lists and dicts, in the order in which `filled` takes them."""
    if isinstance(data, (Mapping, tuple, list)):
        for part in data.values() if isinstance(data, Mapping) else data:
            yield from _arrays(part)
        return
    yield data


def _check_arrays(arrays: list[Any]) -> None:
    """Refuse what has no rows, or not the same number of them."""
    for array in arrays:
        if not isinstance(array, (Tensor, np.ndarray)) or not array.ndim:
            kind = type(array).__name__
            raise TypeError(
                "data: expected a tensor or numpy array with one row per sample, or a tuple or "
                f"dict of them, not {kind}"
            )
    lengths = {len(array) for array in arrays}
    if not lengths:
        raise ValueError("data: a block holds no array; for a function of none give data=None")
    if len(lengths) != 1:
        raise ValueError(
            f"data: the arrays of a block must have the same number of rows, not {sorted(lengths)}"
        )

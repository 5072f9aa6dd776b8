"""All residuals of a setting and their Jacobian, as functions of the flat vector.

A residual depends on its own point only, so the rows of the Jacobian are the gradients of single
points, many at once by vmap: one reverse pass over the points in all, not one for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap
from torch.utils._pytree import tree_leaves, tree_map

from examples.physics.experiment import Residuals, Setting
from examples.physics.replayed import replayed

CHUNK_BYTES = {"cpu": 2**26, "cuda": 2**31}  # of the rows that are computed at once
ROW_COPIES = 4  # of a row, while it is computed

Rows = tuple[Tensor, Tensor]  # some residuals and their rows of the Jacobian


class ResidualJacobian:
    """The residuals r, of which |r|^2 is the loss, and their Jacobian, chunk by chunk.

    Parameters
    ----------
    setting : Setting
        On its device.

    Attributes
    ----------
    residuals, parameters : int
        How many there are.
    """

    def __init__(self, setting: Setting) -> None:
        like = next(setting.net.parameters())
        self.parameters = sum(p.numel() for p in setting.net.parameters())
        row = ROW_COPIES * self.parameters * like.element_size()
        at_once = max(1, CHUNK_BYTES[like.device.type] // row)
        self._blocks = [Block(setting.net, block, at_once) for block in setting.residuals]
        self.residuals = sum(block.residuals for block in self._blocks)

    def __call__(self, x: Tensor) -> Iterator[Rows]:
        """The rows of all blocks; the next ones may overwrite them."""
        for block in self._blocks:
            yield from block.rows(x)


class Block:
    """The residuals of one kind.

    Parameters
    ----------
    net : nn.Module
        Whose parameters are the variables.
    block : (r, data, weight)
        As the setting has it.
    at_once : int
        How many rows may be computed at a time.
    """

    def __init__(self, net: nn.Module, block: Residuals, at_once: int) -> None:
        r, self._data, weight = block
        points = len(tree_leaves(self._data)[0])
        with torch.no_grad():
            columns = r(net, self._some(0, 1)).numel()
        self.residuals = points * columns
        chunks = -(-self.residuals // at_once)
        self._size = -(-points // chunks)  # equal chunks, as a graph has one size
        self._starts = range(0, points, self._size)
        scale = math.sqrt(weight / self.residuals)
        self._rows = replayed(batch_rows(net, r, scale), next(net.parameters()))

    def rows(self, x: Tensor) -> Iterator[Rows]:
        """Chunk by chunk."""
        for start in self._starts:
            yield self._rows(x, self._some(start, self._size))

    def _some(self, start: int, count: int) -> Any:
        return tree_map(lambda part: part[start : start + count], self._data)


class Calling(nn.Module):
    """r(net, batch) as the forward pass of a module, which `functional_call` needs."""

    def __init__(self, net: nn.Module, r: Callable[[Any, Any], Tensor]) -> None:
        super().__init__()
        self.net, self._r = net, r

    def forward(self, batch: Any) -> Tensor:
        return self._r(self.net, batch)


def batch_rows(
    net: nn.Module, r: Callable[[Any, Any], Tensor], scale: float
) -> Callable[[Tensor, Any], Rows]:
    """(x, batch) -> the residuals of a batch, times `scale`, and their rows."""
    calling = Calling(net, r)
    named = [(name, p.shape, p.numel()) for name, p in calling.named_parameters()]
    names, shapes, sizes = zip(*named, strict=True)

    def of_one_point(x: Tensor, sample: Any) -> tuple[Tensor, Tensor]:
        pieces = zip(names, shapes, x.split(sizes), strict=True)
        parameters = {name: piece.view(shape) for name, shape, piece in pieces}
        batch = tree_map(lambda part: part[None], sample)
        found = scale * functional_call(calling, parameters, (batch,))[0]
        return found, found

    of_points = vmap(jacrev(of_one_point, has_aux=True), in_dims=(None, 0))

    def rows(x: Tensor, batch: Any) -> Rows:
        J, found = of_points(x, batch)
        return found.reshape(-1), J.reshape(-1, len(x))

    return rows

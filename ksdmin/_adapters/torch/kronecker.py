"""Kronecker factors of a torch model, from the matrix products that its forward pass makes.

All positions of a sample, and all uses of a weight, count as samples of their own ("expand":
Eschenhagen et al., 2023).
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from ksdmin._adapters.torch.flat_model import FlatModel
from ksdmin._adapters.torch.kernels import Chunk, Forward
from ksdmin._adapters.torch.probing import Probing, alike
from ksdmin._adapters.torch.weight_uses import Use, Uses, pull_back, uses_of
from ksdmin._problem.kronecker import Block, solve_cost

log = logging.getLogger("ksdmin")

# A longer side of a weight has only the diagonal of its factor.
LONGEST_SIDE = 4096


class KroneckerKernel:
    """The kernel that computes the factors, summed over the samples of a chunk."""

    def __init__(self, probing: Probing) -> None:  # which shows how the parameters are used
        kernels, forward = probing.kernels, probing.forward
        self._kernels, self._model = kernels, kernels.model
        self._draws = kernels.loss.draw is not None
        self._starts = [part.start for part in self._model.slices().values()]
        if self._model.is_recurrent:  # another graph: see `_setting`
            with self._model.restored_randomness():
                forward = self._forward(probing.x, probing.chunk)
        self._curved = self._has_curvature(forward.z, probing.chunk)
        uses = uses_of(forward.z, forward.parameters)
        self._of_weight = _blocks(self._model, uses, self._starts)
        self._check(forward)
        joined = {block.bias for block in self._of_weight.values()}
        self._rest = [
            i
            for i, start in enumerate(self._starts)
            if i not in self._of_weight and start not in joined
        ]
        unstructured = (
            Block(self._starts[i], self._model.sizes[i], 1, structured=False) for i in self._rest
        )
        self.blocks = (*self._of_weight.values(), *unstructured)  # what the factors are of

    def __call__(self, x: Tensor, chunk: Chunk) -> tuple[Tensor]:
        """The entries of all factors."""
        sums = {weight: FactorSums(block, x) for weight, block in self._of_weight.items()}
        forward = self._forward(x, chunk)

        def take(use: Use, a: Tensor, b: Tensor) -> None:
            if use.weight is not None:
                sums[use.weight].add(use, a, b)

        g = self._back(forward, take)
        n = len(chunk[2])
        # Gradients are independent with mean zero if labels are drawn, or have random signs. Then
        # the square of their sum is on average the sum of their squares.
        scale = 1 / n if self._kernels.is_scalar else 1.0
        rest = [
            x.new_zeros(()) if g[i] is None else scale * g[i].square().mean() for i in self._rest
        ]
        entries = [part.reshape(-1) for each in sums.values() for part in each.factors(n)]
        return (torch.cat([*entries, *(part.to(x.dtype)[None] for part in rest)]),)

    def _forward(self, x: Tensor, chunk: Chunk) -> Forward:
        with self._setting():
            return self._kernels.forward(x, chunk)

    def _back(
        self,
        forward: Forward,
        take: Callable[[Use, Tensor, Tensor], None],
        *,
        retain_graph: bool = False,
    ) -> tuple[Any, ...]:
        """A backward pass, in which `take` gets the vectors of every use; returns the gradients."""
        parameters, z = forward.parameters, forward.z

        uses = uses_of(z, parameters).by_node.values()
        known = [use for use in uses if use.weight in self._of_weight]
        with self._setting():
            slopes = self._slopes(z.detach(), forward.targets, forward.w)
            return pull_back(
                self._model, parameters, z, slopes, known, take, retain_graph=retain_graph
            )

    def _slopes(self, z: Tensor, targets: Any, w: Tensor) -> Tensor:
        """The vectors that go back through the model: for each sample an r with E[r r^T] = M.

        M is the Hessian of its loss in the outputs. With labels drawn from the model, the gradient
        is such a vector. If the loss defines no labels, it is the gradient at those of the data,
        scaled to the size of M: twice the loss has twice the M, not four times.
        """
        if self._draws:
            roots = (w / self._kernels.loss.likelihood_scale(z)).sqrt()
            return self._kernels.total_and_slopes(z, targets, roots)[1]
        slopes = self._kernels.total_and_slopes(z, targets, w.sqrt())[1]
        if self._kernels.is_scalar:
            return slopes
        if self._curved:
            slopes = _directions(slopes) * self._lengths(z, targets, w)
        return slopes * _signs(len(z), z).reshape(-1, *[1] * (z.ndim - 1))

    def _has_curvature(self, z: Tensor, chunk: Chunk) -> bool:
        """Whether a loss without labels has curvature; a piecewise linear loss has none."""
        if self._draws or self._kernels.is_scalar:
            return False
        _, targets, w = chunk
        return bool((self._lengths(z.detach().clone(), targets, w) > 0).any())

    def _lengths(self, z: Tensor, targets: Any, w: Tensor) -> Tensor:
        """How long the vector of each sample is: |r|^2 = v^T M v, with signs v."""
        v = (1 - 2 * (torch.arange(math.prod(z.shape[1:]), device=z.device) % 2)).to(z.dtype)
        v = v.reshape(z.shape[1:]).expand_as(z)
        curved = v * self._kernels.loss_hessian(z, targets, w)(v)
        lengths = curved.reshape(len(z), -1).sum(1).clamp(min=0.0).sqrt()  # it may curve down
        return lengths.reshape(-1, *[1] * (z.ndim - 1))

    @contextmanager
    def _setting(self) -> Iterator[None]:
        """A setting in which the forward pass of a recurrent layer is not a single node."""
        if not self._model.is_recurrent:
            yield
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of settings for other devices
            with torch.backends.mkldnn.flags(enabled=False):
                yield

    def _check(self, forward: Forward) -> None:
        """Count the uses of each weight; keep those whose gradient these vectors reproduce."""
        x, uses = self._model.x0, dict.fromkeys(self._of_weight, 0)
        made = {
            weight: x.new_zeros(block.rows, block.columns)
            for weight, block in self._of_weight.items()
        }

        def take(use: Use, a: Tensor, b: Tensor) -> None:
            assert use.weight is not None
            whole = made[use.weight]
            uses[use.weight] += len(b)
            if use.looks_up:
                whole.index_add_(0, a, b.to(x.dtype))
            elif (a.shape[1], b.shape[1]) == tuple(whole.shape):
                whole += (a.T @ b.to(a.dtype)).to(x.dtype)
            else:  # of several axes, in another order
                whole.fill_(math.nan)

        g = self._back(forward, take, retain_graph=True)
        self._of_weight = {
            weight: replace(self._of_weight[weight], uses=uses[weight] / len(forward.w))
            for weight, found in made.items()
            if g[weight] is not None
            and alike(found, g[weight].detach().reshape(found.shape).to(x.dtype))
        }


class FactorSums:
    """The sums of one block over the uses of its weight."""

    def __init__(self, block: Block, x: Tensor) -> None:
        self._block, self._rows = block, 0
        self._factors = [x.new_zeros(shape) for shape in block.factor_shapes]

    def add(self, use: Use, a: Tensor, b: Tensor) -> None:
        """Add the vectors of a use."""
        has_bias = self._block.bias is not None
        A, B = self._factors
        self._rows += len(b)
        if use.looks_up:
            A.index_add_(0, a, torch.ones_like(a, dtype=A.dtype))
        else:
            _add_squares(A, a, has_bias and self._block.bias_is_row)
        _add_squares(B, b, has_bias and not self._block.bias_is_row)

    def factors(self, samples: int) -> tuple[Tensor, Tensor]:
        """The sums for so many samples; the first is a mean over the rows, times the samples."""
        A, B = self._factors
        return A * (samples / max(self._rows, 1)), B


def _add_squares(factor: Tensor, vectors: Tensor, with_bias: bool) -> None:
    """Add all v v^T, or their diagonals; a bias sees a one in each."""
    vectors = vectors.to(factor.dtype)
    if with_bias:
        vectors = pad(vectors, (0, 1), value=1.0)
    if factor.ndim == 1:
        factor += vectors.square().sum(0)
    else:
        factor.addmm_(vectors.T, vectors)


def _directions(slopes: Tensor) -> Tensor:
    """The vectors of the samples, of length one; zero where they vanish."""
    rows = slopes.reshape(len(slopes), -1)
    largest = rows.abs().amax(1, keepdim=True)
    rows = rows / torch.where(largest > 0, largest, torch.ones_like(largest))  # lest squares vanish
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return (rows / torch.where(norms > 0, norms, torch.ones_like(norms))).reshape(slopes.shape)


def _signs(count: int, like: Tensor) -> Tensor:
    """Plus and minus one, in an order unrelated to that of the samples."""
    signs = 1 - 2 * ((torch.arange(count, device=like.device) * 2654435761) >> 16 & 1)
    return signs.to(like.dtype)  # Knuth's multiplicative hash


def _blocks(model: FlatModel, uses: Uses, starts: list[int]) -> dict[int, Block]:
    """The blocks of the weights that are used in such nodes only, by their positions."""
    blocks = {}
    for weight, shape in enumerate(model.shapes):
        of_it = uses.of_weight(weight)
        if not of_it or len(shape) < 2:
            continue
        rows, columns = shape[0], math.prod(shape[1:])
        bias, is_row = _common_bias(uses, of_it)
        blocks[weight] = Block(
            starts[weight],
            rows,
            columns,
            bias=None if bias is None else starts[bias],
            bias_is_row=is_row,
            diagonal_rows=rows > LONGEST_SIDE or any(use.looks_up for use in of_it),
            diagonal_columns=columns > LONGEST_SIDE,
        )
    return blocks


def _common_bias(uses: Uses, of_weight: list[Use]) -> tuple[int | None, bool]:
    """The bias that goes with a weight in all of its uses, and with nothing else."""
    both = {(use.bias, use.bias_is_row) for use in of_weight}
    bias, is_row = both.pop()
    if both or bias is None or len(uses.of_bias(bias)) != len(of_weight):
        return None, False
    return bias, is_row


def kronecker_kernel(probing: Probing, *, asked: bool, affordable: float) -> KroneckerKernel | None:
    """The kernel for a model; None if it has no layers with factors, or they do not pay.

    Unless they are `asked` for, a multiplication by the inverse may cost at most `affordable`
    operations.
    """
    if probing.kernels.model.recomputes:
        reason = "its activations are computed again in the backward pass"
    else:
        try:
            kernel = KroneckerKernel(probing)
        except Exception as error:  # whatever a module may raise
            reason = str(error).split(". ")[0]
        else:
            if any(block.structured for block in kernel.blocks):
                cheap = solve_cost(kernel.blocks) <= affordable
                return kernel if asked or cheap else None
            reason = "no parameter of it is a weight of a matrix product or a convolution"
    said = log.warning if asked else log.info
    said("ksdmin: no Kronecker factors for this model, but a diagonal: %s", reason)
    return None

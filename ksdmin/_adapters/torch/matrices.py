"""The Jacobian of a model's outputs, row by row, and the matrix of one with few parameters.

With the losses' second derivatives M in the outputs, the Gauss-Newton matrix is J^T M J. Where M is
diagonal, the rows of M^1/2 J are those of a sum of squares. There are three ways to them:

- "vmap": a reverse pass for each sample, all at once. It takes no longer than one over all samples.
- "uses": one reverse pass over all samples, for a model that does not work under vmap: one that
  differentiates its outputs with ``torch.autograd.grad``, or a recurrent one. At each product of a
  weight with rows of a sample, b is an input row and a the gradient of the output row: the sample's
  row of the Jacobian is the sum of all a b^T. If a sample has several rows, one for each position,
  either the rows of a sample are contiguous, or those of a position. A few parameters that are used
  in other ways, such as an unknown coefficient, get their columns from products with the Jacobian.
- "graphs": reverse passes over a few samples for all of their outputs at once, for such a model
  with many parameters that are used in other ways.
"""

from __future__ import annotations

import itertools
import logging
import math
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from ksdmin._adapters.curvature import DIAGONAL_TOL, off_diagonal
from ksdmin._adapters.torch.flat_model import FlatModel
from ksdmin._adapters.torch.kernels import Chunk, Forward, Kernels, Product
from ksdmin._adapters.torch.model_calls import row_count
from ksdmin._adapters.torch.probing import Probing, alike
from ksdmin._adapters.torch.weight_uses import Use, Uses, pull_back, uses_of
from ksdmin._adapters.trees import tree_map

log = logging.getLogger("ksdmin")

# Samples that share a graph in the way "graphs": every reverse pass runs through all of them, but
# many at once take little longer than one.
SAMPLES_PER_GRAPH = 32
# Memory of a chunk, in units of its rows: the rows of each parameter, the joined rows, and
# temporary arrays of the reverse passes.
ROW_COPIES = 4
# Entries of the rows of a chunk on a CPU, whose caches are small.
CACHED_ENTRIES = 2**22


class JacobianRows:
    """Kernels for the rows of the Jacobian, for losses whose M is diagonal."""

    def __init__(
        self,
        kernels: Kernels,
        elements: int,  # of the outputs of a sample
        # How the rows are made: "vmap", "uses" or "graphs". "uses" becomes "graphs" once samples
        # have shown that the uses are not the same for all.
        way: str,
        max_rows: int,  # how many samples a chunk may have
    ) -> None:
        self._kernels, self._model = kernels, kernels.model
        self.elements, self.max_rows, self.way = elements, max_rows, way
        self._by_position = False

    @property
    def products(self) -> int:
        """How many products the rows count as: how often the model is evaluated for them."""
        if self.way == "columns":
            return self._model.x0.numel()
        return self.elements * (SAMPLES_PER_GRAPH if self.way == "graphs" else 1)

    def rows(self, x: Tensor, chunk: Chunk) -> tuple[Tensor, Tensor, Tensor]:
        """M^1/2 J, of shape (samples, outputs, n), the slopes of the losses, and M^1/2.

        An output whose loss is not convex has a row of zeros.
        """
        J, z = self._jacobian(x, chunk[0])
        root = self._curvatures(z, chunk).clamp_min(0).sqrt()
        return J * root[:, :, None], self._slopes(z, chunk)[1], root

    def slopes(self, x: Tensor, chunk: Chunk) -> tuple[Tensor, Tensor]:
        """The sum of the losses, and their slopes in the outputs."""
        with torch.set_grad_enabled(self._kernels.values_need_grad):
            z = self._model(self._model.split(x), chunk[0])
        return self._slopes(z.detach(), chunk)

    def _slopes(self, z: Tensor, chunk: Chunk) -> tuple[Tensor, Tensor]:
        total, slopes = self._kernels.total_and_slopes(z, chunk[1], chunk[2])
        return total.detach(), slopes.reshape(len(z), self.elements).detach()

    def miss_slopes(self, z: Tensor, chunk: Chunk) -> bool:
        """Whether most outputs have a slope, but no curvature: their rows are zeros.

        Huber's loss far from its minimum is an example. Steps made of the other rows would leave
        out most of the gradient.
        """
        flat = (self._curvatures(z, chunk) <= 0) & (self._slopes(z, chunk)[1] != 0)
        return 2 * int(flat.sum()) > flat.numel()

    def transposed(self, probing: Probing, U: Tensor) -> Tensor:
        """J^T u for some vectors u of the shape of the outputs, to compare with another way.

        It is computed in the same way as the rows, of which there may be very many.
        """
        if self.way == "vmap":
            return self._pulled(probing.x, probing.chunk[0], U.transpose(0, 1))[0].sum(0)
        forward = probing.forward
        if self.way == "columns":
            jvp, _ = self._kernels.jacobian(forward.z, forward.parameters)
            return self._columns_by(lambda v: (U * jvp(v)).flatten(1).sum(1), len(U)).T
        if self.way == "uses":
            return self._pulled_by_uses(forward, U)
        return self._pulled_together(forward.parameters, forward.z, U, retain_graph=True)

    def find_order(self, probing: Probing) -> None:
        """Find out the order of the rows, if a sample has several.

        A backward pass from the first sample's outputs reaches only the rows of that sample.
        """
        forward, first = probing.forward, []
        samples, slopes = len(forward.z), torch.zeros_like(forward.z)
        slopes[0] = 1

        def take(use: Use, a: Tensor, b: Tensor) -> None:
            reached = (a if use.looks_up else a.abs().sum(1)) * b.abs().sum(1)
            if len(a) > samples:
                first.append(reached.reshape(-1, samples)[:, 1:].count_nonzero() == 0)

        uses = uses_of(forward.z, forward.parameters).by_node.values()
        pull_back(self._model, forward.parameters, forward.z, slopes, uses, take, retain_graph=True)
        self._by_position = samples > 1 and len(first) > 0 and all(map(bool, first))

    def keeps_order(self, probing: Probing, u: Tensor) -> bool:
        """Whether reversed samples have reversed rows: a model may sort its samples."""
        backwards = tree_map(lambda part: part.flip(0), probing.chunk)
        with self._model.restored_randomness():
            forward = self._kernels.forward(probing.x, backwards)
        (expected,) = self._pulled_together(
            forward.parameters, forward.z, u[None], retain_graph=True
        )
        (found,) = self._pulled_by_uses(forward, u[None])
        return alike(found, expected)

    def _pulled_by_uses(self, forward: Forward, U: Tensor) -> Tensor:
        J = self._by_uses(forward.parameters, forward.z, retain_graph=True)
        return U.reshape(len(U), -1) @ J.reshape(-1, J.shape[-1])

    def _curvatures(self, z: Tensor, chunk: Chunk) -> Tensor:
        """The diagonal of M, one row per sample."""
        hessian = self._kernels.output_hessian(z, chunk[1], chunk[2])
        return hessian(torch.ones_like(z)).reshape(len(z), self.elements).detach()

    def _jacobian(self, x: Tensor, inputs: Any) -> tuple[Tensor, Tensor]:
        """J, of shape (samples, outputs, n); and the outputs."""
        if self.way == "vmap":
            return self._pulled(x, inputs, None)
        if self.way == "columns":
            parameters = self._model.leaves(x)
            z = self._model(parameters, inputs)
            return self._by_columns(parameters, z), z.detach()
        if self.way == "uses":
            parameters = self._model.leaves(x)
            z = self._model(parameters, inputs)
            try:
                return self._by_uses(parameters, z), z.detach()
            except NotImplementedError:  # these samples have other products than those of the check
                self.way = "graphs"
        starts = range(0, row_count(inputs), SAMPLES_PER_GRAPH)
        some = [slice(start, start + SAMPLES_PER_GRAPH) for start in starts]
        parts = [self._together(x, tree_map(itemgetter(rows), inputs)) for rows in some]
        return torch.cat([J for J, _ in parts]), torch.cat([z for _, z in parts])

    def _pulled(self, x: Tensor, inputs: Any, U: Tensor | None) -> tuple[Tensor, Tensor]:
        """J^T u of each sample, for its own vectors u or for all unit vectors; and the outputs."""

        def of_sample(pieces: list[Tensor], one: Any, own: Any) -> tuple[list[Tensor], Tensor]:
            def outputs(pieces: list[Tensor]) -> Tensor:
                z: Tensor = self._model(pieces, tree_map(lambda part: part[None], one))[0]
                return z

            z, pull, *_ = torch.func.vjp(outputs, pieces)
            if own is None:
                own = torch.eye(self.elements, dtype=z.dtype, device=z.device)
            return torch.func.vmap(pull)(own.reshape(-1, *z.shape))[0], z

        axes = (None, 0, None if U is None else 0)
        with _quietly(), torch.no_grad():  # what is not varied may require a gradient, too
            J, z = torch.func.vmap(of_sample, in_dims=axes)(self._model.split(x), inputs, U)
        return torch.cat([piece.reshape(*piece.shape[:2], -1) for piece in J], 2), z

    def _by_uses(
        self, parameters: list[Tensor], z: Tensor, *, retain_graph: bool = False
    ) -> Tensor:
        """J, of shape (samples, outputs, n), from a reverse pass for each of a sample's outputs."""
        uses, J = uses_of(z, parameters), []
        made = RowsOfUses(self._model, uses, len(z), self._by_position)
        columns = self._columns(parameters, z, made.others)
        back = partial(pull_back, self._model, parameters, z)
        for k in range(self.elements):
            slopes = torch.zeros_like(z).reshape(len(z), -1)
            slopes[:, k] = 1
            again = retain_graph or k + 1 < self.elements
            back(slopes.reshape(z.shape), made.uses, made.take, retain_graph=again)
            J.append(made.joined(z, {i: piece[:, k] for i, piece in columns.items()}))
        return torch.stack(J, 1)

    def _by_columns(self, parameters: list[Tensor], z: Tensor) -> Tensor:
        """J, of shape (samples, outputs, n), from the products with all unit vectors."""
        jvp, _ = self._kernels.jacobian(z, parameters)
        columns = self._columns_by(jvp)
        return columns.reshape(len(columns), len(z), -1).permute(1, 2, 0)

    def _columns_by(self, product: Product, at_once: int | None = None) -> Tensor:
        """The products with all unit vectors, so many at once; None: all."""
        x = self._model.x0
        units = torch.eye(x.numel(), dtype=x.dtype, device=x.device)
        with _quietly():
            columns: Tensor = torch.func.vmap(product, chunk_size=at_once)(units)
        return columns.detach()

    def _columns(
        self, parameters: list[Tensor], z: Tensor, which: Sequence[int]
    ) -> dict[int, Tensor]:
        """The columns of some parameters, of shape (samples, outputs, size): products J v."""
        sizes = self._model.sizes
        if sum(sizes[i] for i in which) > SAMPLES_PER_GRAPH:
            raise NotImplementedError("many parameters are not weights of matrix products")
        if not which:
            return {}
        jvp, _ = self._kernels.jacobian(z, parameters)
        starts, unit = [0, *itertools.accumulate(sizes)], z.new_zeros(sum(sizes))
        columns = {}
        for i in which:
            found = []
            for place in range(starts[i], starts[i] + sizes[i]):
                v = unit.clone()
                v[place] = 1
                found.append(jvp(v).detach().reshape(len(z), -1))
            columns[i] = torch.stack(found, 2)
        return columns

    def _together(self, x: Tensor, inputs: Any) -> tuple[Tensor, Tensor]:
        parameters = self._model.leaves(x)
        z = self._model(parameters, inputs)
        units = torch.eye(z.numel(), dtype=z.dtype, device=z.device).reshape(-1, *z.shape)
        J = self._pulled_together(parameters, z, units)
        return J.reshape(len(z), self.elements, -1), z.detach()

    def _pulled_together(
        self, parameters: list[Tensor], z: Tensor, U: Tensor, *, retain_graph: bool = False
    ) -> Tensor:
        """J^T u for each of some vectors u, over the graph of all samples."""
        with _quietly():
            how = {"retain_graph": retain_graph, "is_grads_batched": True}
            pieces = self._model.derivatives(parameters, z, U, **how)
        shapes = zip(pieces, self._model.sizes, strict=True)
        flat = [
            z.new_zeros(len(U), size) if piece is None else piece.reshape(len(U), size)
            for piece, size in shapes
        ]
        return torch.cat(flat, 1)


class RowsOfUses:
    """The gradient of each sample, from the uses of the parameters in one reverse pass over all."""

    def __init__(
        self,
        model: FlatModel,
        uses: Uses,
        samples: int,
        by_position: bool,  # whether the rows of a position are contiguous, not those of a sample
    ) -> None:
        count = len(model.sizes)
        weights = {i for i in range(count) if uses.of_weight(i)}
        biases = {i for i in range(count) if uses.of_bias(i)}
        self._sizes, self._samples, self._by_position = model.sizes, samples, by_position
        # Those that take part in the pass.
        self.uses = [
            use for use in uses.by_node.values() if {use.weight, use.bias} & (weights | biases)
        ]
        # The parameters that are used in other ways.
        self.others = sorted(set(uses.leaves) - weights - biases)
        self._known = weights | biases
        self._of_weight: dict[int, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        self._of_bias: dict[int, list[Tensor]] = defaultdict(list)

    def take(self, use: Use, a: Tensor, b: Tensor) -> None:
        """Record the vectors of a use."""
        if use.looks_up or len(a) % self._samples:
            raise NotImplementedError("a weight is not multiplied by rows of samples")
        a, b = self._of_samples(a), self._of_samples(b)
        if use.weight is not None:
            self._of_weight[use.weight].append((a, b))
        if use.bias is not None:
            self._of_bias[use.bias].append(use.of_bias(a, b).sum(1))

    def _of_samples(self, rows: Tensor) -> Tensor:
        """The rows of each sample."""
        if self._by_position:
            return rows.reshape(-1, self._samples, rows.shape[1]).transpose(0, 1)
        return rows.reshape(self._samples, -1, rows.shape[1])

    @torch.no_grad()
    def joined(self, z: Tensor, columns: dict[int, Tensor]) -> Tensor:
        """The rows of all samples, with the columns of the other parameters; then start again."""
        pieces = []
        for i, size in enumerate(self._sizes):
            if i in columns:
                pieces.append(columns[i])
            elif i in self._known and self._of_weight[i]:
                a, b = zip(*self._of_weight[i], strict=True)
                pieces.append((torch.cat(a, 1).mT @ torch.cat(b, 1)).reshape(-1, size))
            elif i in self._known and self._of_bias[i]:
                pieces.append(torch.stack(self._of_bias[i]).sum(0))
            else:  # the outputs do not depend on it
                pieces.append(z.new_zeros(self._samples, size))
        self._of_weight.clear()
        self._of_bias.clear()
        return torch.cat(pieces, 1)


def scaled_slopes(slopes: Tensor, root: Tensor) -> Tensor:
    """r = M^-1/2 slopes, so that J^T M^1/2 r is the gradient; zero where M is."""
    return torch.where(root > 0, slopes / root.clamp_min(torch.finfo(root.dtype).tiny), 0)


def jacobian_rows(probing: Probing, budget: float) -> JacobianRows | None:
    """The kernels for a model, checked with a few samples; None if there are none."""
    kernels, x, z = probing.kernels, probing.x, probing.forward.z.detach()
    model = kernels.model
    wanted = kernels.curvature == "gauss-newton" and not kernels.fault
    if not wanted or model.is_random or model.batch_norms or model.recomputes or kernels.is_scalar:
        return None
    if z.shape[:1] != probing.chunk[2].shape or not _is_diagonal(kernels, z, probing.chunk):
        return None
    elements = math.prod(z.shape[1:])
    entries = x.numel() * elements
    most = int(budget // (ROW_COPIES * entries * x.element_size()))
    if most < 1:
        return None
    if not x.is_cuda:
        most = min(most, max(1, CACHED_ENTRIES // entries))
    # a reverse pass for each sample writes an array of a weight's size at each of its uses
    ways: tuple[str, ...] = ("uses", "vmap") if model.is_recurrent else ("vmap", "uses")
    if 2 * x.numel() <= elements:  # a product is two passes back
        ways = ("columns", *ways)
    every = [JacobianRows(kernels, elements, way, most) for way in (*ways, "graphs")]
    if every[0].miss_slopes(z, probing.chunk):  # in whichever way they are computed
        return None
    return next((rows for rows in every if _agrees(rows, probing)), None)


def _is_diagonal(kernels: Kernels, z: Tensor, probe: Chunk) -> bool:
    """Whether the loss of a sample is a sum over its outputs."""
    try:
        found = off_diagonal(kernels.output_hessian(z, probe[1], probe[2]), z)
    except Exception as error:  # whatever a loss may raise
        _say("Jacobian", error)
        return False
    return float(found) <= DIAGONAL_TOL


def _agrees(rows: JacobianRows, probing: Probing) -> bool:
    """Whether such rows give the right J^T u, and with M the curvature of the products.

    All outputs of all samples are tested, but in two vectors, because there may be very many.
    """
    kernels, forward = probing.kernels, probing.forward
    try:
        jvp, vjp = kernels.jacobian(forward.z, forward.parameters)
        MJv = kernels.output_hessian(forward.z.detach(), forward.targets, forward.w)(
            jvp(probing.direction)
        )
        if rows.way == "uses":
            rows.find_order(probing)
        mixed = torch.linspace(0, 7, MJv.numel(), dtype=MJv.dtype, device=MJv.device).cos()
        u = mixed.reshape(MJv.shape)
        found, other = rows.transposed(probing, torch.stack([MJv, u]).detach())
        expected = vjp(u)
        if rows.way == "uses" and not rows.keeps_order(probing, u):
            return False
    except Exception as error:  # whatever a module may raise under vmap
        _say("Jacobian", error)
        return False
    return alike(other, expected) and probing.agrees(found)


def _say(what: str, error: Exception) -> None:
    log.info("ksdmin: no %s for this model: %s", what, str(error).split(". ")[0])


@contextmanager
def _quietly() -> Iterator[None]:
    """Without torch's warning of operations that vmap executes one by one."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        yield


# The whole curvature matrix of a model with few parameters, summed over samples. One Linear layer
# has the blocks X^T M_ab X, which are fast matrix products. Any other model uses the products with
# all unit vectors, many at once by vmap


# For other models than one Linear layer: with more parameters a Krylov space is always less work.
MAX_UNKNOWNS = 300
# These must fit into the memory budget: the matrix, a chunk's part of it, and two temporary copies.
MATRIX_COPIES = 4
# A product within vmap takes about as long as a single one (measured: 0.4 to 0.9 of it), because
# both are limited by memory: so many times the operations of a large matrix product.
VMAP_COST = 8


class LinearMatrix:
    """The kernel for a model that is one Linear layer."""

    products = 1  # what a matrix counts as: the data are read once

    def __init__(self, kernels: Kernels, use: Use) -> None:
        self._kernels, self._bias = kernels, use.bias is not None
        outputs, features = kernels.model.shapes[use.weight or 0]
        self._outputs = outputs
        # Of a matrix, in floating-point operations of a product.
        self.cost = (features + self._bias) * (outputs + 1) / 4
        # the place of each parameter among (output, feature), where the bias is the last feature
        place = torch.arange(outputs * (features + self._bias)).reshape(outputs, -1)
        parts = {use.weight: place[:, :features], use.bias: place[:, features:]}
        order = [parts[i].reshape(-1) for i in sorted(i for i in parts if i is not None)]
        self._order = torch.cat(order).to(kernels.model.device)

    def __call__(self, x: Tensor, chunk: Chunk) -> Tensor:
        """The sum of the samples' matrices."""
        forward = self._kernels.forward(x, chunk)
        z, targets, w = forward.z.detach(), forward.targets, forward.w
        (use,) = uses_of(forward.z, forward.parameters).by_node.values()
        a = use.vectors(z)[1].detach().to(x.dtype)
        a = torch.cat([a, a.new_ones(len(a), 1)], 1) if self._bias else a
        hessian = self._kernels.output_hessian(z, targets, w)
        size, outputs = a.shape[1], self._outputs
        blocks = a.new_zeros((outputs, size, outputs, size))
        for column in range(outputs):
            unit = torch.zeros_like(z).reshape(len(w), outputs)
            unit[:, column] = 1
            M = hessian(unit.reshape(z.shape)).reshape(len(w), outputs).to(a.dtype)
            for row in range(column + 1):
                block = (a * M[:, row : row + 1]).T @ a
                blocks[row, :, column] = block
                blocks[column, :, row] = block
        return blocks.reshape(outputs * size, -1)[self._order][:, self._order]


class BatchedProducts:
    """The kernel for any model: the products with all unit vectors."""

    def __init__(
        self,
        kernels: Kernels,
        max_kept_samples: int,  # how many samples' products fit into the memory budget
    ) -> None:
        self._kernels, self._max_kept_samples = kernels, max_kept_samples
        self.products = kernels.model.x0.numel()
        self.cost = float(VMAP_COST * self.products)

    def __call__(self, x: Tensor, chunk: Chunk) -> Tensor:
        """The sum of the samples' matrices."""
        columns = max(1, self._max_kept_samples // len(chunk[2]))  # at a time
        units = torch.eye(x.numel(), dtype=x.dtype, device=x.device)
        product = self._kernels.product(x, chunk)
        H: Tensor = torch.func.vmap(product, chunk_size=columns)(units)
        return H


MatrixKernel = LinearMatrix | BatchedProducts


def matrix_kernel(probing: Probing, max_kept_samples: int, budget: float) -> MatrixKernel | None:
    """The kernel for a model, checked with a few samples; None if there is no affordable one."""
    kernels = probing.kernels
    n, model = kernels.model.x0.numel(), kernels.model
    too_large = MATRIX_COPIES * n**2 * model.x0.element_size() > budget
    if too_large or kernels.fault or not kernels.curvature or kernels.curvature == "fisher":
        return None
    if model.is_random or model.batch_norms or model.recomputes:
        return None
    candidates: list[MatrixKernel] = [*_linear(probing)]
    if n <= MAX_UNKNOWNS:
        candidates.append(BatchedProducts(kernels, max_kept_samples))
    return next((kernel for kernel in candidates if _is_that_of_products(kernel, probing)), None)


def _linear(probing: Probing) -> list[LinearMatrix]:
    """The kernel of a model whose parameters all belong to one Linear layer."""
    kernels, forward = probing.kernels, probing.forward
    uses = uses_of(forward.z, forward.parameters).by_node.values()
    for use in uses if len(uses) == 1 else ():
        a, b = use.vectors(forward.z)
        rows = a is forward.z and len(b) == len(forward.w)
        if rows and {use.weight, use.bias} - {None} == set(range(len(kernels.model.sizes))):
            return [LinearMatrix(kernels, use)]
    return []


def _is_that_of_products(kernel: MatrixKernel, probing: Probing) -> bool:
    """Whether matrix and products agree; a model may change what its layer returns."""
    try:
        return probing.agrees(kernel(probing.x, probing.chunk) @ probing.direction)
    except Exception as error:  # whatever a module may raise under vmap
        _say("curvature matrix", error)
        return False

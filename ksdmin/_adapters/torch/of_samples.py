"""From a model's computations and its samples to a problem."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ksdmin._adapters.flat_problem import WORKING_COPIES
from ksdmin._adapters.seeds import draw_seed
from ksdmin._adapters.torch.backward_checks import (
    check_gradients_found,
    check_inner_derivatives,
    fault_of_products,
    reads_parameters_again,
)
from ksdmin._adapters.torch.checks import check_values
from ksdmin._adapters.torch.costs import (
    Costs,
    bytes_per_sample,
    chunk_budget,
    costs_of,
    counted_value,
)
from ksdmin._adapters.torch.data.epochs import EpochSamples
from ksdmin._adapters.torch.data.samples import Samples
from ksdmin._adapters.torch.diagonal import Diagonal, diagonal_kernel
from ksdmin._adapters.torch.flat_model import FlatModel
from ksdmin._adapters.torch.jacobian import JacobianRows, jacobian_rows
from ksdmin._adapters.torch.kernels import Kernels
from ksdmin._adapters.torch.kronecker import KroneckerKernel, kronecker_kernel
from ksdmin._adapters.torch.matrix import MatrixKernel, matrix_kernel
from ksdmin._adapters.torch.model_and_loss import First, noting_targets, probe_of
from ksdmin._adapters.torch.modes import BATCH_SAMPLES, seeded_generators
from ksdmin._adapters.torch.probing import Probing, lean_convolutions_work
from ksdmin._adapters.torch.problem import TorchProblem
from ksdmin._adapters.torch.sample_sums import SampleSums
from ksdmin._problem.kronecker import Block


def of_samples(
    kernels: Kernels,
    curvature: str | Callable[..., Any],
    first: First,
    samples: Samples | EpochSamples,
    *,
    l2: float | Mapping[str, float],
    precond: Any,
    chunk_size: int | None,
    memory_budget: float | None,
    graphs: bool | None,
    rng: Any,
) -> TorchProblem:
    """The problem of a model and its samples, of which a first pass has shown something."""
    _check_chunk_size(chunk_size)
    flat_model = kernels.model
    probing, found = _probe(
        kernels, first, samples, memory_budget, precond if isinstance(precond, str) else None
    )
    if isinstance(precond, str):
        precond = "diagonal" if kernels.diagonal or kernels.diagonal_later else None
    on_cuda = flat_model.device.type == "cuda"
    paddable = samples.one_shape and not kernels.is_scalar
    most = found.max_rows(flat_model)
    if flat_model.batch_norms:
        most = min(most, BATCH_SAMPLES)
    sums = SampleSums(
        kernels,
        samples,
        max_rows=int(chunk_size or most),
        max_kept_samples=found.max_kept_samples,
        graphs=paddable and (on_cuda if graphs is None else graphs),
        seed=draw_seed(rng),
    )
    problem = TorchProblem(
        flat_model,
        sums,
        curvature,
        l2_vector(l2, flat_model),
        precond,
        found.bytes_per_sample,
        found.nonlinear,
        found.matrix,
        found.rows,
        found.blocks,
        found.costs,
    )
    check_values(problem, probing)
    return problem


@dataclass(frozen=True)
class _Findings:
    """What a few samples show of a model.

    Attributes
    ----------
    nonlinear : bool
        Whether it is nonlinear in its parameters.
    bytes_per_sample : int
        What a forward pass keeps of a sample for the backward pass.
    max_kept_samples : int
        How many samples' products fit into the memory budget.
    max_gradients : int or None
        How many samples' gradients do; None where the diagonal needs none.
    matrix : MatrixKernel or None
        What computes the curvature matrix of a linear model, where that is affordable.
    rows : JacobianRows or None
        What computes the Jacobian of any other model, likewise.
    blocks : tuple of Block or None
        What the Kronecker factors are of, where they were asked for.
    costs : Costs
        Of a product.
    """

    nonlinear: bool
    bytes_per_sample: int
    max_kept_samples: int
    max_gradients: int | None
    matrix: MatrixKernel | None
    rows: JacobianRows | None
    blocks: tuple[Block, ...] | None
    costs: Costs

    def max_rows(self, model: FlatModel) -> int:
        """How many samples a chunk may have."""
        rows = self.max_kept_samples
        if model.is_random and self.max_gradients is not None:
            rows = min(rows, self.max_gradients)  # its dropout masks are drawn for a whole chunk
        return rows


def _probe(
    kernels: Kernels,
    first: First,
    samples: Samples | EpochSamples,
    memory_budget: float | None,
    precond: str | None,
) -> tuple[Probing, _Findings]:
    """Look at the model with a few samples, and set up the kernel of the preconditioner."""
    model = kernels.model
    budget = chunk_budget(model.device) if memory_budget is None else memory_budget
    probe = probe_of(samples)
    with model.arithmetic(model.precision), seeded_generators(0, model.device):
        counted = counted_value(kernels, probe)
        with noting_targets(probe[1], samples):
            probing = Probing(kernels, probe)
            check_gradients_found(probing)
        if kernels.values_need_grad:
            check_inner_derivatives(probing)
        model.recomputes = reads_parameters_again(probing)
        kernels.fault = fault_of_products(probing)
        nonlinear = model.is_nonlinear(probe[0], first.z, probing.forward.z.detach())
        kernels.lean_convolutions = lean_convolutions_work(probing)
        kept = kernels.bytes_per_sample = first.bytes_per_sample or bytes_per_sample(kernels, probe)
        costs = costs_of(kernels, counted, len(probe[2]), nonlinear)
        kernels.factors = factors = _factors(probing, samples, precond, nonlinear, costs)
        kernel = None
        if precond is not None and not model.batch_norms:  # samples have no gradients of their own
            if factors is None or model.is_random:
                kernel = diagonal_kernel(probing, budget)
            else:  # for a run that does without factors, and asks for it
                kernels.diagonal_later = partial(_diagonal_later, kernels, samples, budget)
        kernels.diagonal = kernel
        max_kept_samples = max(1, int(budget // (WORKING_COPIES * kept)))
        matrix = None if nonlinear else matrix_kernel(probing, max_kept_samples, budget)
        rows = jacobian_rows(probing, budget) if nonlinear else None
        if rows is not None:
            kernels.rows, kernels.slopes = rows.rows, rows.slopes
    return probing, _Findings(
        nonlinear,
        kept,
        max_kept_samples=max_kept_samples,
        max_gradients=None if kernel is None else kernel.max_samples,
        matrix=matrix,
        rows=rows,
        blocks=None if factors is None else factors.blocks,
        costs=costs,
    )


def _diagonal_later(
    kernels: Kernels, samples: Samples | EpochSamples, budget: float
) -> Diagonal | None:
    """The kernel of the diagonal, made when a run asks for it."""
    model = kernels.model
    with model.arithmetic(model.precision), seeded_generators(0, model.device):
        return diagonal_kernel(Probing(kernels, probe_of(samples)), budget)


def _factors(
    probing: Probing,
    samples: Samples | EpochSamples,
    precond: str | None,
    nonlinear: bool,
    costs: Costs,
) -> KroneckerKernel | None:
    """The kernel of Kronecker factors, where they are asked for or pay.

    A multiplication by the inverse may cost as much as a product with all samples: it stands beside
    products with few of them, which are as many as it makes needless.
    """
    if precond == "kronecker":
        return kronecker_kernel(probing, asked=True, affordable=math.inf)
    if precond != "auto" or not nonlinear or costs.product is None or not samples.n:
        return None
    affordable = costs.call + costs.product * samples.n
    return kronecker_kernel(probing, asked=False, affordable=affordable)


def _check_chunk_size(chunk_size: int | None) -> None:
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size={chunk_size!r}: expected at least one sample")


def l2_vector(l2: float | Mapping[str, float], model: FlatModel) -> Tensor:
    """The weight of each entry's square in the penalty: one number, or one per entry."""
    named = l2 if isinstance(l2, Mapping) else {"": l2}
    if not all(weight >= 0 for weight in named.values()):
        raise ValueError(f"l2={l2!r}: expected numbers that are not negative")
    if not isinstance(l2, Mapping):
        return model.x0.new_tensor(float(l2))
    weights = torch.zeros_like(model.x0)
    for name, weight in l2.items():
        slices = model.slices_of(name)
        if not slices:
            raise ValueError(f"l2: the model has no trainable parameter or module {name!r}")
        for part in slices:
            weights[part] = weight
    return weights

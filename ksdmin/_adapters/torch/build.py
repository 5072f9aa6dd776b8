"""From the arguments of ``from_torch`` to a problem."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from ksdmin._adapters.arguments import check_curvature_of_function, refuse
from ksdmin._adapters.block_arguments import (
    Block,
    as_blocks,
    check_block_curvature,
    noting_block,
)
from ksdmin._adapters.blocks import BlockProblem, Term
from ksdmin._adapters.curvature import check_provider
from ksdmin._adapters.flat_problem import DIAGONAL_SAMPLES, WORKING_COPIES
from ksdmin._adapters.seeds import draw_seed
from ksdmin._adapters.torch.backward_checks import (
    check_gradients_found,
    fault_of_products,
    reads_parameters_again,
)
from ksdmin._adapters.torch.checks import check_model, check_values
from ksdmin._adapters.torch.costs import Costs, costs_of
from ksdmin._adapters.torch.data.epochs import EpochSamples
from ksdmin._adapters.torch.data.samples import Samples
from ksdmin._adapters.torch.diagonal import diagonal_kernel
from ksdmin._adapters.torch.distributed.build import (
    Group,
    blocks_of_all_processes,
    of_all_processes,
    unwrapped,
)
from ksdmin._adapters.torch.flat_function import FlatFunction
from ksdmin._adapters.torch.flat_model import FlatModel, differentiates
from ksdmin._adapters.torch.jacobian import JacobianRows, jacobian_rows
from ksdmin._adapters.torch.kernels import Kernels, lean_convolutions_work
from ksdmin._adapters.torch.matrix import MatrixKernel, matrix_kernel
from ksdmin._adapters.torch.memory import bytes_per_sample, chunk_budget
from ksdmin._adapters.torch.model_and_loss import kernels_of, probe_of
from ksdmin._adapters.torch.model_outputs import check_output
from ksdmin._adapters.torch.plain_function import TorchFunctionProblem
from ksdmin._adapters.torch.problem import TorchProblem, refuse_inference_mode
from ksdmin._adapters.torch.random import seeded_generators
from ksdmin._adapters.torch.residuals import ResidualModel, residual_kernels
from ksdmin._adapters.torch.sample_sums import SampleSums
from ksdmin._problem.subsets import as_subsets


def build(
    model: Any,
    loss: Any,
    data: Any,
    *,
    residuals: Any,
    x0: Any,
    subsets: Any,
    output: Any,
    curvature: str | Callable[..., Any] | None,
    l2: float | Mapping[str, float],
    precond: Any,
    params: Iterable[Any] | None,
    chunk_size: int | None,
    memory_budget: float | None,
    precision: str,
    graphs: bool | None,
    rng: Any,
    sample_weight: Any,
    process_group: Any,
    split: bool | str,
) -> TorchProblem | TorchFunctionProblem | BlockProblem:
    """The problem of :func:`ksdmin.from_torch`, which documents the arguments."""
    refuse_inference_mode()
    check_provider(curvature)
    check_output(output)
    group = Group(process_group, split, memory_budget)
    settings = {"l2": l2, "precond": precond, "memory_budget": memory_budget}
    settings |= {"chunk_size": chunk_size, "graphs": graphs, "rng": rng}
    if residuals is not None:
        instead = "a model, or x0= with a plain function, not with residuals="
        given = {"loss": loss, "data": data, "x0": x0, "subsets": subsets, "output": output}
        refuse(instead, **given, sample_weight=sample_weight)
        return _blocks(model, as_blocks(residuals), params, precision, curvature, group, **settings)
    if x0 is not None:
        a_models = {"params": params, "chunk_size": chunk_size, "memory_budget": memory_budget}
        a_models |= {"sample_weight": sample_weight, "output": output}
        a_models |= {"process_group": process_group}
        refuse("a model, not with x0=", loss=loss, data=data, **a_models)
        return _plain_function(model, x0, subsets, curvature, l2, precond, precision, graphs)
    refuse("a plain function and its x0=; a model's samples are its data", subsets=subsets)
    _require(model, loss, data)
    model = unwrapped(model, process_group)

    def make(data: Any, stacklevel: int) -> TorchProblem:
        check_model(model, stacklevel=stacklevel)
        flat_model = FlatModel(model, params, precision)
        samples = _samples(data, sample_weight, flat_model, memory_budget, loss is not None)
        found = kernels_of(flat_model, loss, samples, output, curvature, stacklevel=stacklevel)
        if process_group is None:  # else one process may have such samples only
            samples.check_weights()
        return _of_samples(found[0], samples, found[1], **settings)

    if process_group is None:
        return make(data, 4)
    return of_all_processes(group, model, data, curvature, precond, make)


def _of_samples(
    kernels: Kernels,
    samples: Samples | EpochSamples,
    curvature: str | Callable[..., Any],
    *,
    l2: float | Mapping[str, float],
    precond: Any,
    chunk_size: int | None,
    memory_budget: float | None,
    graphs: bool | None,
    rng: Any,
) -> TorchProblem:
    """The problem of a model and its samples."""
    _check_chunk_size(chunk_size)
    flat_model = kernels.model
    found = _probe(kernels, samples, memory_budget, diagonal=isinstance(precond, str))
    if isinstance(precond, str) and precond == "fisher" and kernels.diagonal is None:
        precond = None
    on_cuda = flat_model.device.type == "cuda"
    paddable = samples.one_shape and not kernels.is_scalar
    sums = SampleSums(
        kernels,
        samples,
        max_rows=int(chunk_size or found.max_rows(flat_model)),
        max_kept_samples=found.max_kept_samples,
        graphs=paddable and (on_cuda if graphs is None else graphs),
        seed=draw_seed(rng),
    )
    problem = TorchProblem(
        flat_model,
        sums,
        curvature,
        _l2_vector(l2, flat_model),
        precond,
        found.bytes_per_sample,
        sys.maxsize if found.max_gradients is None else DIAGONAL_SAMPLES,
        found.nonlinear,
        found.matrix,
        found.costs,
    )
    check_values(problem, flat_model)
    return problem


def _blocks(
    model: Any,
    blocks: list[Block],
    params: Iterable[Any] | None,
    precision: str,
    curvature: Any,
    group: Group,
    *,
    precond: Any,
    **settings: Any,
) -> BlockProblem:
    """The sum of blocks of squared residuals."""
    if not isinstance(model, nn.Module):
        kind = type(model).__name__
        raise TypeError(f"model: residuals= needs the nn.Module that r is given, not {kind}")
    check_block_curvature(curvature)
    model = unwrapped(model, group.given)
    params = params if params is None or isinstance(params, (str, Tensor)) else list(params)

    def make(blocks: Sequence[Block], stacklevel: int) -> BlockProblem:
        check_model(model, stacklevel=stacklevel)
        flat = partial(ResidualModel, model, params=params, precision=precision)
        return _of_blocks(flat, blocks, curvature or "gauss-newton", precond, **settings)

    if group.given is None:
        return make(blocks, 5)
    return blocks_of_all_processes(group, model, blocks, curvature, precond, make)


def _of_blocks(
    flat: Callable[..., ResidualModel],
    blocks: Sequence[Block],
    curvature: str,
    precond: Any,
    *,
    l2: float | Mapping[str, float],
    memory_budget: float | None,
    rng: Any,
    **settings: Any,
) -> BlockProblem:
    """The problem of blocks; `flat` makes a model of each."""
    generator = np.random.default_rng(rng)  # the blocks draw labels and masks of their own
    settings |= {"l2": 0.0, "precond": precond if isinstance(precond, str) else None}
    terms = []
    for number, block in enumerate(blocks):
        with noting_block(number):
            flat_model = flat(block=block)
            budget = (memory_budget or chunk_budget(flat_model.device)) / len(blocks)
            samples = flat_model.samples(budget)
            kernels, per_sample = residual_kernels(flat_model, probe_of(samples), curvature)
            problem = _of_samples(
                kernels,
                samples,
                kernels.curvature,
                memory_budget=budget,
                rng=generator,
                **settings,
            )
        terms.append(Term(problem, block.weight, per_sample))
    penalty = _l2_vector(l2, flat_model)
    return BlockProblem(terms, penalty if bool(penalty.any()) else None, precond)


def _plain_function(
    fun: Any,
    x0: Any,
    subsets: Any,
    curvature: Any,
    l2: Any,
    precond: Any,
    precision: str,
    graphs: bool | None,
) -> TorchFunctionProblem:
    """The problem of a function and its x0."""
    if fun is x0:
        raise TypeError(
            "the function is x0 itself: for a module that returns its loss write "
            "from_torch(lambda module: module(batch), x0=net)"
        )
    if not callable(fun):
        raise TypeError(f"beside x0=, expected a function fun(theta), not {type(fun).__name__}")
    check_curvature_of_function(curvature)
    function = FlatFunction(fun, x0, precision)
    sets = None if subsets is None else as_subsets(subsets)
    return TorchFunctionProblem(
        function, sets, curvature, _l2_vector(l2, function), precond, graphs
    )


def _require(model: Any, loss: Any, data: Any) -> None:
    """Refuse a model without data; one without a loss has to return its own."""
    missing = "loss" if loss is None and data is None else "data" if data is None else None
    if missing:
        raise TypeError(
            f"{missing}= is missing: a model needs loss and data; one that returns its own loss "
            "needs data, with all that it takes; a plain function needs x0="
        )
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model: expected an nn.Module, not {type(model).__name__}; a plain function needs x0="
        )


def _check_chunk_size(chunk_size: int | None) -> None:
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size={chunk_size!r}: expected at least one sample")


def _samples(
    data: Any, sample_weight: Any, model: FlatModel, memory_budget: float | None, targets: bool
) -> Samples | EpochSamples:
    """The data, from wherever they are; `targets`: whether they have any."""
    make = partial(
        Samples,
        device=model.device,
        dtype=model.x0.dtype,
        split_targets=targets,
        memory_budget=memory_budget,
    )
    if isinstance(data, Dataset) or not callable(data):
        return make(data, sample_weight=sample_weight)
    refuse("data that are the same in every iteration", sample_weight=sample_weight)
    return EpochSamples(data, make)


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
    matrix : MatrixKernel, JacobianRows or None
        What computes its curvature matrix, where that is affordable.
    costs : Costs
        Of a product.
    """

    nonlinear: bool
    bytes_per_sample: int
    max_kept_samples: int
    max_gradients: int | None
    matrix: MatrixKernel | JacobianRows | None
    costs: Costs

    def max_rows(self, model: FlatModel) -> int:
        """How many samples a chunk may have."""
        rows = self.max_kept_samples
        if model.is_random and self.max_gradients is not None:
            rows = min(rows, self.max_gradients)  # its dropout masks are drawn for a whole chunk
        return rows


def _probe(
    kernels: Kernels,
    samples: Samples | EpochSamples,
    memory_budget: float | None,
    *,
    diagonal: bool,
) -> _Findings:
    """Look at the model with a few samples, and set up the kernel of the diagonal."""
    model = kernels.model
    budget = chunk_budget(model.device) if memory_budget is None else memory_budget
    probe = probe_of(samples)
    with model.arithmetic(model.precision), seeded_generators(0, model.device):
        kernels.values_need_grad = differentiates(model, probe[0])
        check_gradients_found(kernels, probe)
        model.recomputes = reads_parameters_again(kernels, probe)
        kernels.fault = fault_of_products(kernels, probe)
        nonlinear = model.is_nonlinear(probe[0])
        kernels.lean_convolutions = lean_convolutions_work(kernels, probe)
        kept = bytes_per_sample(kernels, probe)
        kernel = diagonal_kernel(kernels, probe, budget) if diagonal else None
        kernels.diagonal = kernel
        max_kept_samples = max(1, int(budget // (WORKING_COPIES * kept)))
        matrix: MatrixKernel | JacobianRows | None = matrix_kernel(
            kernels, probe, max_kept_samples, budget
        )
        if nonlinear:
            matrix = jacobian_rows(kernels, probe, budget) or matrix
        if isinstance(matrix, JacobianRows):
            kernels.rows, kernels.matrix = matrix.rows, matrix.matrix
        costs = costs_of(kernels, probe, nonlinear)
    return _Findings(
        nonlinear,
        kept,
        max_kept_samples=max_kept_samples,
        max_gradients=None if kernel is None else kernel.max_samples,
        matrix=matrix,
        costs=costs,
    )


def _l2_vector(l2: float | Mapping[str, float], model: FlatModel) -> Tensor:
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

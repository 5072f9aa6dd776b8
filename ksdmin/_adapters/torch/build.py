"""From the arguments of ``from_torch`` to a problem."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ksdmin._adapters.arguments import (
    Arguments,
    Block,
    as_blocks,
    as_precond,
    check_block_curvature,
    check_curvature_of_function,
    noting_block,
)
from ksdmin._adapters.blocks import BlockProblem, Term
from ksdmin._adapters.curvature import check_provider
from ksdmin._adapters.flat_problem import WORKING_COPIES, FlatProblem, draw_seed
from ksdmin._adapters.torch import checks
from ksdmin._adapters.torch.costs import Costs, chunk_budget, costs_of, counted_value
from ksdmin._adapters.torch.data.samples import (
    EpochSamples,
    Samples,
    is_function_of_epoch,
    samples_of,
)
from ksdmin._adapters.torch.diagonal import Diagonal, diagonal_kernel
from ksdmin._adapters.torch.distributed.build import (
    asked_for,
    blocks_of_all_processes,
    of_all_processes,
    unwrapped,
)
from ksdmin._adapters.torch.flat_model import FlatModel, doubled
from ksdmin._adapters.torch.kernels import Kernels
from ksdmin._adapters.torch.kronecker import KroneckerKernel, kronecker_kernel
from ksdmin._adapters.torch.matrices import jacobian_rows, matrix_kernel
from ksdmin._adapters.torch.model_and_loss import (
    ResidualModel,
    check_outputs,
    kernels_of,
    noting_targets,
    probe_of,
    residual_kernels,
)
from ksdmin._adapters.torch.model_calls import (
    BATCH_SAMPLES,
    FEWEST_SAMPLES,
    check_output,
    seeded_generators,
)
from ksdmin._adapters.torch.plain_function import FlatFunction, TorchFunctionProblem
from ksdmin._adapters.torch.probing import Probing, lean_convolutions_work
from ksdmin._adapters.torch.problem import InDouble, TorchProblem, refuse_inference_mode
from ksdmin._adapters.torch.sums import SampleSums
from ksdmin._problem.protocol import Traits
from ksdmin._problem.subsets import as_subsets
from ksdmin._problem.user_values import as_generator, frames_to_the_user

P = TypeVar("P", bound=FlatProblem)


def build(asked: Arguments) -> TorchProblem | TorchFunctionProblem | BlockProblem:
    """The problem of :func:`ksdmin.from_torch`, which documents the arguments."""
    refuse_inference_mode()
    if asked.x0 is None:
        asked = replace(asked, process_group=asked_for(asked.process_group))
    check_provider(asked.curvature)
    check_output(asked.output)
    asked = replace(asked, precond=as_precond(asked.precond, "auto", "kronecker", "diagonal"))
    if asked.residuals is not None:
        instead = "a model, or x0= with a plain function, not with residuals="
        asked.refuse(instead, "loss", "data", "subsets", "output", "sample_weight")
        asked.refuse(instead, "x0", mend="a run starts at the parameters of the module")
        return _blocks(asked)
    if asked.x0 is not None:
        a_models = "params", "chunk_size", "memory_budget", "sample_weight", "output"
        asked.refuse("a model, not with x0=", "loss", "data", *a_models, "process_group")
        return _function(asked)
    asked.refuse("a plain function and its x0=; a model's samples are its data", "subsets")
    _require_model(asked)
    group = asked.process_group
    asked = replace(asked, model=unwrapped(asked.model, group))

    def make(data: Any) -> TorchProblem:
        checks.check_model(asked.model, without_batches=None if group is None else "process_group=")
        return _model(replace(asked, data=data))

    return make(asked.data) if group is None else of_all_processes(asked, make)


def _turning(problem: P, asked: Arguments, in_double: Callable[[], FlatProblem]) -> P:
    """The problem, whose runs in float32 may turn to float64.

    The user's own verbs know one dtype; several processes would have to turn at the same time.
    """
    own = callable(asked.curvature) or callable(asked.precond)
    turns = not own and asked.process_group is None and asked.precision != "float32"
    if turns and problem.x0.dtype == torch.float32:
        problem._double = InDouble(in_double)
    return problem


def _again(asked: Arguments) -> Arguments:
    """The same with an unused generator."""
    return replace(asked, rng=copy.deepcopy(asked.rng))


# A model and its loss


def _require_model(asked: Arguments) -> None:
    """Raise for a model without data; a model without a loss has to return its own."""
    missing = ["loss"] if asked.loss is None and asked.data is None else []
    missing += ["data"] if asked.data is None else []
    if missing:
        raise TypeError(
            f"{missing[0]}= is missing: a model needs loss and data; one that returns its own loss "
            "needs data, with all that it takes; a plain function needs x0="
        )
    if not isinstance(asked.model, nn.Module):
        raise TypeError(
            f"model: expected an nn.Module, not {type(asked.model).__name__}; a plain function "
            "needs x0="
        )


def _model(asked: Arguments) -> TorchProblem:
    """The problem of a model and its loss."""
    model = FlatModel(asked.model, asked.params, asked.precision)
    if is_function_of_epoch(asked.data):
        asked.refuse("data that are the same in every iteration", "sample_weight")
    has_targets, like = asked.loss is not None, model.x0
    samples = samples_of(asked.data, like, has_targets, asked.memory_budget, asked.sample_weight)
    asked = replace(asked, data=None)  # the samples hold them, or a copy
    again = _again(asked)
    kernels, z = kernels_of(model, samples, asked)
    if asked.process_group is None:  # otherwise one process may have only such samples
        samples.check_weights()
    problem = _of_samples(kernels, z, samples, asked)
    return _turning(problem, asked, partial(_model_in_double, model, samples, again))


def _model_in_double(
    model: FlatModel, samples: Samples | EpochSamples, asked: Arguments
) -> TorchProblem:
    """The problem of a copy of the model and its loss in float64, with the same samples."""
    samples = samples.in_dtype(torch.float64)
    with model.modes.in_force():  # the copy keeps them
        model, asked = model.of(doubled(model.model)), replace(asked, loss=doubled(asked.loss))
    check_outputs(model, samples)
    kernels, z = kernels_of(model, samples, asked)
    return _of_samples(kernels, z, samples, _again(asked))


# Blocks of residuals


def _blocks(asked: Arguments) -> BlockProblem:
    """The sum of blocks of squared residuals."""
    if not isinstance(asked.model, nn.Module):
        kind = type(asked.model).__name__
        raise TypeError(f"model: residuals= needs the nn.Module that r is given, not {kind}")
    check_block_curvature(asked.curvature)
    model, params, blocks = asked.model, asked.params, as_blocks(asked.residuals)
    model = unwrapped(model, asked.process_group)
    params = params if params is None or isinstance(params, (str, Tensor)) else list(params)
    asked = replace(asked, model=model, params=params)

    def make(blocks: Sequence[Block]) -> BlockProblem:
        checks.check_model(model, without_batches="residuals=")
        return _own_blocks(blocks, asked)

    if asked.process_group is None:
        return make(blocks)
    return blocks_of_all_processes(asked, blocks, make)


def _own_blocks(blocks: Sequence[Block], asked: Arguments) -> BlockProblem:
    """The problem of the blocks of this process."""
    parts = []
    for number, block in enumerate(blocks):
        with noting_block(number):
            model = ResidualModel(asked.model, block, asked.params, asked.precision)
            budget = (asked.memory_budget or chunk_budget(model.device)) / len(blocks)
            parts.append((model, model.samples(budget)))
    asked = replace(asked, memory_budget=budget)
    again = _again(asked)
    problem = _of_blocks(parts, asked)
    return _turning(problem, asked, partial(_blocks_in_double, parts, again))


def _of_blocks(
    parts: list[tuple[ResidualModel, Samples | EpochSamples]], asked: Arguments
) -> BlockProblem:
    """The problem of the blocks, each with its samples."""
    of_block = replace(
        asked,
        l2=0.0,
        curvature=asked.curvature or "gauss-newton",
        # factors of several blocks are not factors of their sum, which has a diagonal
        precond="diagonal" if isinstance(asked.precond, str) else None,
        rng=as_generator(asked.rng),  # the blocks draw labels and masks of their own
    )
    terms = []
    for number, (model, samples) in enumerate(parts):
        with noting_block(number):
            kernels, z = residual_kernels(model, probe_of(samples), of_block.curvature)
            problem = _of_samples(kernels, z, samples, of_block)
        terms.append(Term(problem, model.block.weight, math.prod(z.shape[1:])))
    penalty = l2_vector(asked.l2, parts[0][0])
    return BlockProblem(terms, penalty if bool(penalty.any()) else None, asked.precond)


def _blocks_in_double(
    parts: list[tuple[ResidualModel, Samples | EpochSamples]], asked: Arguments
) -> BlockProblem:
    """The problem of a copy of the model in float64, with the same samples."""
    with parts[0][0].modes.in_force():  # the copy keeps them
        twin = doubled(parts[0][0].model)
    finer = [(model.of(twin), samples.in_dtype(torch.float64)) for model, samples in parts]
    for part in finer:
        check_outputs(*part)
    return _of_blocks(finer, _again(asked))


# A plain function


def _function(asked: Arguments) -> TorchFunctionProblem:
    """The problem of a function and its x0."""
    fun, x0 = asked.model, asked.x0
    if fun is x0:
        raise TypeError(
            "the function is x0 itself: for a module that returns its loss write "
            "from_torch(lambda module: module(batch), x0=net)"
        )
    if not callable(fun):
        raise TypeError(f"beside x0=, expected a function fun(theta), not {type(fun).__name__}")
    check_curvature_of_function(asked.curvature)
    subsets = None if asked.subsets is None else as_subsets(asked.subsets)
    asked = replace(asked, subsets=subsets)
    function = FlatFunction(fun, x0, asked.precision)
    problem = _of_function(function, asked)
    return _turning(problem, asked, partial(_function_in_double, function, asked))


def _of_function(function: FlatFunction, asked: Arguments) -> TorchFunctionProblem:
    chosen = asked.subsets, asked.curvature, l2_vector(asked.l2, function), asked.precond
    return TorchFunctionProblem(function, *chosen, asked.graphs)


def _function_in_double(function: FlatFunction, asked: Arguments) -> TorchFunctionProblem:
    """The problem of the same function in float64, if that works."""
    problem = _of_function(function.in_double(), asked)
    problem.check_is_double()
    return problem


# From a model's computations and its samples to a problem


def _of_samples(
    kernels: Kernels, at_x0: Tensor, samples: Samples | EpochSamples, asked: Arguments
) -> TorchProblem:
    """The problem of a model and its samples: what a few of these show decides how it computes."""
    model = kernels.model
    wanted = asked.precond if isinstance(asked.precond, str) else None
    budget = asked.memory_budget
    budget = chunk_budget(model.device) if budget is None else budget
    probe = probe_of(samples)
    with model.arithmetic(model.precision), seeded_generators(0, model.device):
        counted = counted_value(kernels, probe)
        with noting_targets(probe[1], samples):
            probing = Probing(kernels, probe)
            checks.check_gradients_found(probing)
        if kernels.values_need_grad:
            checks.check_inner_derivatives(probing)
        model.recomputes = checks.reads_parameters_again(probing)
        kernels.fault = checks.fault_of_products(probing)
        if kernels.by_differences:
            warnings.warn(
                f"{kernels.fault}. For now, products with the Hessian are differences of "
                "gradients, which are less accurate",
                UserWarning,
                stacklevel=frames_to_the_user(),
            )
        nonlinear = model.is_nonlinear(probe[0], at_x0, probing.forward.z.detach())
        kernels.lean_convolutions = lean_convolutions_work(probing)
        rows_wanted = nonlinear or isinstance(model, ResidualModel)  # other blocks may need them
        costs = costs_of(kernels, counted if rows_wanted else None, len(probe[2]))
        kernels.factors = factors = _factors(probing, samples, wanted, nonlinear, costs)
        # the samples that fit into memory: of products, and of a chunk
        kept = most = max(1, int(budget // (WORKING_COPIES * kernels.bytes_per_sample)))
        if wanted is not None and not model.batch_norms:  # samples have no separate gradients
            if factors is None or model.is_random:
                kernels.diagonal = diagonal = diagonal_kernel(probing, budget)
                if model.is_random and diagonal is not None and diagonal.max_samples is not None:
                    most = min(most, diagonal.max_samples)  # masks are drawn for a whole chunk
            else:  # for a run without factors that asks for it
                kernels.make_diagonal = partial(_diagonal_later, kernels, samples, budget)
        matrix = None if nonlinear else matrix_kernel(probing, kept, budget)
        rows = jacobian_rows(probing, budget) if rows_wanted else None
        if rows is not None:
            kernels.rows, kernels.slopes = rows.rows, rows.slopes
    graphs = model.device.type == "cuda" if asked.graphs is None else asked.graphs
    sums = SampleSums(
        kernels,
        samples,
        max_rows=int(asked.chunk_size or min(most, BATCH_SAMPLES if model.batch_norms else most)),
        max_kept_samples=kept,
        graphs=samples.one_shape and not kernels.is_scalar and graphs,
        seed=draw_seed(asked.rng),
    )
    if wanted is not None:
        asked = replace(asked, precond="diagonal" if kernels.has_diagonal else None)
    traits = Traits(
        nonlinear=nonlinear,
        matrix_memory=chunk_budget(model.device) if model.x0.is_cuda else None,
        product_cost=costs.product,
        call_cost=costs.call,
        least_set=costs.least_set,
        fewest_samples=FEWEST_SAMPLES if model.batch_norms else 1,
        has_factors=factors is not None,
    )
    curvature = asked.curvature if callable(asked.curvature) else kernels.curvature
    l2 = l2_vector(asked.l2, model)
    problem = TorchProblem(kernels, sums, l2, traits, asked.precond, curvature, matrix, rows)
    checks.check_values(problem, probing)
    return problem


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
    """The kernel of Kronecker factors, if they are asked for or pay.

    A multiplication by the inverse may cost as much as a product with all samples: it is used with
    products on few samples, and saves several of these.
    """
    if precond == "kronecker":
        return kronecker_kernel(probing, asked=True, affordable=math.inf)
    if precond != "auto" or not nonlinear or costs.product is None or not samples.n:
        return None
    affordable = costs.call + costs.product * samples.n
    return kronecker_kernel(probing, asked=False, affordable=affordable)


def l2_vector(l2: float | Mapping[str, float], model: FlatModel) -> Tensor:
    """The weight of each entry's square in the penalty: one number, or one per entry."""
    named = l2 if isinstance(l2, Mapping) else {"": l2}
    if not all(isinstance(weight, (Real, Tensor)) and weight >= 0 for weight in named.values()):
        raise ValueError(f"l2={l2!r}: expected numbers that are not negative")
    if not isinstance(l2, Mapping):
        return model.x0.new_tensor(float(l2))
    weights = torch.zeros_like(model.x0)
    for name, weight in l2.items():
        every, inside = model.slices().items(), f"{name}."
        slices = [part for own, part in every if own == name or own.startswith(inside)]
        if not slices:
            raise ValueError(f"l2: the model has no trainable parameter or module {name!r}")
        for part in slices:
            weights[part] = weight
    return weights

"""From the arguments of ``from_torch`` to a problem."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from ksdmin._adapters.arguments import (
    Block,
    as_blocks,
    as_precond,
    check_block_curvature,
    check_curvature_of_function,
    noting_block,
    refuse,
)
from ksdmin._adapters.blocks import BlockProblem, Term
from ksdmin._adapters.curvature import check_provider
from ksdmin._adapters.torch.checks import check_model
from ksdmin._adapters.torch.costs import chunk_budget
from ksdmin._adapters.torch.data.epochs import EpochSamples
from ksdmin._adapters.torch.data.samples import Samples
from ksdmin._adapters.torch.distributed.build import (
    asked_for,
    blocks_of_all_processes,
    of_all_processes,
    unwrapped,
)
from ksdmin._adapters.torch.flat_function import FlatFunction
from ksdmin._adapters.torch.flat_model import FlatModel
from ksdmin._adapters.torch.in_double import InDouble, check_outputs, doubled
from ksdmin._adapters.torch.model_and_loss import kernels_of, probe_of
from ksdmin._adapters.torch.model_calls import check_output
from ksdmin._adapters.torch.of_samples import l2_vector, of_samples
from ksdmin._adapters.torch.plain_function import TorchFunctionProblem
from ksdmin._adapters.torch.problem import TorchProblem, refuse_inference_mode
from ksdmin._adapters.torch.residuals import ResidualModel, residual_kernels
from ksdmin._problem.subsets import Subsets, as_subsets


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
) -> TorchProblem | TorchFunctionProblem | BlockProblem:
    """The problem of :func:`ksdmin.from_torch`, which documents the arguments."""
    refuse_inference_mode()
    if x0 is None:
        process_group = asked_for(process_group)
    check_provider(curvature)
    check_output(output)
    precond = as_precond(precond, "auto", "kronecker", "diagonal")
    # Verbs of the user's know one dtype; several processes would have to turn at the same time
    may_turn = not callable(curvature) and not callable(precond) and process_group is None
    turns = may_turn and precision != "float32"
    precision = "highest" if precision == "float32" else precision
    settings = {"l2": l2, "precond": precond, "memory_budget": memory_budget}
    settings |= {"chunk_size": chunk_size, "graphs": graphs, "rng": rng}
    if residuals is not None:
        instead = "a model, or x0= with a plain function, not with residuals="
        given = {"loss": loss, "data": data, "x0": x0, "subsets": subsets, "output": output}
        refuse(instead, **given, sample_weight=sample_weight)
        asked = params, precision, curvature, turns, process_group
        return _blocks(model, as_blocks(residuals), *asked, **settings)
    if x0 is not None:
        a_models = {"params": params, "chunk_size": chunk_size, "memory_budget": memory_budget}
        a_models |= {"sample_weight": sample_weight, "output": output}
        a_models |= {"process_group": process_group}
        refuse("a model, not with x0=", loss=loss, data=data, **a_models)
        function = _flat_function(model, x0, curvature, precision)
        sets = None if subsets is None else as_subsets(subsets)
        return _plain_function(function, turns, sets, curvature, l2, precond, graphs)
    refuse("a plain function and its x0=; a model's samples are its data", subsets=subsets)
    _require(model, loss, data)
    model = unwrapped(model, process_group)

    seed = copy.deepcopy(rng)  # a Generator would go on

    def make(data: Any, stacklevel: int) -> TorchProblem:
        in_processes = None if process_group is None else "process_group="
        check_model(model, stacklevel=stacklevel, without_batches=in_processes)
        flat_model = FlatModel(model, params, precision)
        samples = _samples(data, sample_weight, flat_model, memory_budget, loss is not None)
        asked = {"output": output, "curvature": curvature}
        found = kernels_of(flat_model, loss, samples, **asked, stacklevel=stacklevel)
        if process_group is None:  # else one process may have such samples only
            samples.check_weights()
        problem = of_samples(*found, samples, **settings)
        if turns and problem.x0.dtype == torch.float32:
            again = partial(_model_in_double, flat_model, loss, samples, asked, settings, seed)
            problem._double = InDouble(again)
        return problem

    if process_group is None:
        return make(data, 4)
    return of_all_processes(process_group, model, data, curvature, precond, make)


def _model_in_double(
    model: FlatModel,
    loss: Any,
    samples: Samples | EpochSamples,
    asked: Mapping[str, Any],
    settings: Mapping[str, Any],
    rng: Any,
) -> TorchProblem:
    """The problem of a copy of the model and its loss in float64, with the same samples."""
    samples = samples.in_dtype(torch.float64)
    with model.modes.in_force():  # the copy keeps them
        model, loss = model.of(doubled(model.model)), doubled(loss)
    check_outputs(model, samples)
    found = kernels_of(model, loss, samples, **asked, stacklevel=1)
    return of_samples(*found, samples, **{**settings, "rng": copy.deepcopy(rng)})


def _blocks(
    model: Any,
    blocks: list[Block],
    params: Iterable[Any] | None,
    precision: str,
    curvature: Any,
    turns: bool,
    process_group: Any,
    **settings: Any,
) -> BlockProblem:
    """The sum of blocks of squared residuals."""
    if not isinstance(model, nn.Module):
        kind = type(model).__name__
        raise TypeError(f"model: residuals= needs the nn.Module that r is given, not {kind}")
    check_block_curvature(curvature)
    model = unwrapped(model, process_group)
    params = params if params is None or isinstance(params, (str, Tensor)) else list(params)
    settings |= {"curvature": curvature}

    def make(blocks: Sequence[Block], stacklevel: int) -> BlockProblem:
        check_model(model, stacklevel=stacklevel, without_batches="residuals=")
        flat = partial(ResidualModel, model, params=params, precision=precision)
        return _own_blocks(flat, blocks, turns, **settings)

    if process_group is None:
        return make(blocks, 5)
    precond = settings["precond"]
    return blocks_of_all_processes(process_group, model, blocks, curvature, precond, make)


def _own_blocks(
    flat: Callable[..., ResidualModel],
    blocks: Sequence[Block],
    turns: bool,
    *,
    memory_budget: float | None,
    **settings: Any,
) -> BlockProblem:
    """The problem of the blocks of this process; `flat` makes a model of each."""
    parts = []
    for number, block in enumerate(blocks):
        with noting_block(number):
            flat_model = flat(block=block)
            budget = (memory_budget or chunk_budget(flat_model.device)) / len(blocks)
            parts.append((flat_model, flat_model.samples(budget)))
    settings |= {"memory_budget": budget}
    again = partial(_blocks_in_double, parts, copy.deepcopy(settings["rng"]), settings)
    problem = _of_blocks(parts, **settings)
    if turns and problem.x0.dtype == torch.float32:
        problem._double = InDouble(again)
    return problem


def _of_blocks(
    parts: list[tuple[ResidualModel, Samples | EpochSamples]],
    *,
    curvature: Any,
    l2: float | Mapping[str, float],
    precond: Any,
    rng: Any,
    **settings: Any,
) -> BlockProblem:
    """The problem of the blocks, each with its samples."""
    generator = np.random.default_rng(rng)  # the blocks draw labels and masks of their own
    # Factors of several blocks are not those of their sum: it has a diagonal
    settings |= {"l2": 0.0, "precond": "diagonal" if isinstance(precond, str) else None}
    terms = []
    for number, (model, samples) in enumerate(parts):
        with noting_block(number):
            kernels, first = residual_kernels(model, probe_of(samples), curvature or "gauss-newton")
            problem = of_samples(
                kernels, kernels.curvature, first, samples, rng=generator, **settings
            )
        terms.append(Term(problem, model.block.weight, math.prod(first.z.shape[1:])))
    penalty = l2_vector(l2, parts[0][0])
    return BlockProblem(terms, penalty if bool(penalty.any()) else None, precond)


def _blocks_in_double(
    parts: list[tuple[ResidualModel, Samples | EpochSamples]], rng: Any, settings: Mapping[str, Any]
) -> BlockProblem:
    """The problem of a copy of the model in float64, with the same samples."""
    with parts[0][0].modes.in_force():  # the copy keeps them
        twin = doubled(parts[0][0].model)
    finer = [(model.of(twin), samples.in_dtype(torch.float64)) for model, samples in parts]
    for part in finer:
        check_outputs(*part)
    return _of_blocks(finer, **{**settings, "rng": copy.deepcopy(rng)})


def _flat_function(fun: Any, x0: Any, curvature: Any, precision: str) -> FlatFunction:
    """A function and its x0."""
    if fun is x0:
        raise TypeError(
            "the function is x0 itself: for a module that returns its loss write "
            "from_torch(lambda module: module(batch), x0=net)"
        )
    if not callable(fun):
        raise TypeError(f"beside x0=, expected a function fun(theta), not {type(fun).__name__}")
    check_curvature_of_function(curvature)
    return FlatFunction(fun, x0, precision)


def _plain_function(
    function: FlatFunction,
    turns: bool,
    subsets: Subsets | None,
    curvature: Any,
    l2: Any,
    precond: Any,
    graphs: bool | None,
) -> TorchFunctionProblem:
    """The problem of a function."""
    settings = subsets, curvature, l2, precond, graphs
    penalty = l2_vector(l2, function)
    problem = TorchFunctionProblem(function, subsets, curvature, penalty, precond, graphs)
    if turns and problem.x0.dtype == torch.float32:
        problem._double = InDouble(partial(_function_in_double, function, *settings))
    return problem


def _function_in_double(function: FlatFunction, *settings: Any) -> TorchFunctionProblem:
    """The problem of the same function in float64, where it can be seen to work."""
    problem = _plain_function(function.in_double(), False, *settings)
    problem.check_is_double()
    return problem


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

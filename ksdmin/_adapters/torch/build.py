"""From the arguments of ``from_torch`` to a problem."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ksdmin._adapters.blocks import (
    Block,
    BlockProblem,
    Term,
    as_blocks,
    check_block_curvature,
    noting_block,
)
from ksdmin._adapters.curvature import check_provider
from ksdmin._adapters.flat_problem import DIAGONAL_SAMPLES, WORKING_COPIES
from ksdmin._adapters.sample_loss import SampleLoss
from ksdmin._adapters.seeds import draw_seed
from ksdmin._adapters.torch.checks import (
    check_forward_pass,
    check_model,
    check_values,
    warn_of_output_nonlinearity,
)
from ksdmin._adapters.torch.data import Samples
from ksdmin._adapters.torch.diagonal import diagonal_kernel
from ksdmin._adapters.torch.flat_model import FlatModel, differentiates
from ksdmin._adapters.torch.kernels import Chunk, Kernels
from ksdmin._adapters.torch.losses import as_sample_loss
from ksdmin._adapters.torch.memory import bytes_per_sample, default_budget
from ksdmin._adapters.torch.plain_function import FlatFunction, TorchFunctionProblem
from ksdmin._adapters.torch.problem import TorchProblem
from ksdmin._adapters.torch.random import seeded_generators
from ksdmin._adapters.torch.residuals import ResidualModel, squared_residuals
from ksdmin._adapters.torch.sample_sums import SampleSums
from ksdmin._problem.subsets import WHOLE, as_subsets

# Samples of the forward passes that show what a model is like: more than one, so that the axis of
# the samples can be distinguished, and few, as some of these passes go sample by sample.
PROBE_SAMPLES = 3


def build(
    model: Any,
    loss: Any,
    data: Any,
    *,
    residuals: Any,
    x0: Any,
    subsets: Any,
    curvature: str | Callable[..., Any] | None,
    l2: float | Mapping[str, float],
    precond: Any,
    params: Iterable[Any] | None,
    chunk_size: int | None,
    memory_budget: float | None,
    precision: str,
    graphs: bool | None,
    rng: Any,
) -> TorchProblem | TorchFunctionProblem | BlockProblem:
    """The problem of :func:`ksdmin.from_torch`, which documents the arguments."""
    check_provider(curvature)
    model_settings = {"chunk_size": chunk_size, "graphs": graphs, "rng": rng}
    if residuals is not None:
        instead = "a model, or x0= with a plain function, not with residuals="
        _refuse(instead, loss=loss, data=data, x0=x0, subsets=subsets)
        return _blocks(
            model,
            as_blocks(residuals),
            params,
            precision,
            curvature=curvature,
            l2=l2,
            precond=precond,
            memory_budget=memory_budget,
            **model_settings,
        )
    if x0 is not None:
        a_models = {"params": params, "chunk_size": chunk_size, "memory_budget": memory_budget}
        _refuse("a model, not with x0=", loss=loss, data=data, **a_models, graphs=graphs or None)
        return _plain_function(model, x0, subsets, curvature, l2, precond, precision)
    _refuse("a plain function and its x0=; a model's samples are its data", subsets=subsets)
    _require(loss=loss, data=data)
    check_model(model)
    flat_model = FlatModel(model, params, precision)
    samples = Samples(data, flat_model.device, flat_model.x0.dtype)
    curvature = curvature or "gauss-newton"
    return _of_samples(
        flat_model,
        samples,
        _sample_loss(loss, samples, curvature),
        curvature=curvature,
        l2=l2,
        precond=precond,
        memory_budget=memory_budget,
        loss=loss,
        **model_settings,
    )


def _of_samples(
    flat_model: FlatModel,
    samples: Samples,
    sample_loss: SampleLoss,
    *,
    curvature: str | Callable[..., Any],
    l2: float | Mapping[str, float],
    precond: Any,
    chunk_size: int | None,
    memory_budget: float | None,
    graphs: bool | None,
    rng: Any,
    loss: Any,
) -> TorchProblem:
    """The problem of a model and its samples."""
    _check_chunk_size(chunk_size)
    kernels = Kernels(flat_model, sample_loss, curvature if isinstance(curvature, str) else "")
    found = _probe(kernels, samples, memory_budget, diagonal=isinstance(precond, str))
    if isinstance(precond, str) and precond == "fisher" and kernels.diagonal is None:
        precond = None
    if curvature == "gauss-newton":
        warn_of_output_nonlinearity(found.outputs, loss, stacklevel=4)
    sums = SampleSums(
        kernels,
        samples,
        max_rows=int(chunk_size or found.max_rows(flat_model, samples)),
        max_kept_samples=found.max_kept_samples,
        graphs=flat_model.device.type == "cuda" if graphs is None else graphs,
        seed=draw_seed(rng),
    )
    problem = TorchProblem(
        flat_model,
        sums,
        curvature,
        _l2_vector(l2, flat_model),
        precond,
        found.bytes_per_sample,
        samples.n if found.max_gradients is None else DIAGONAL_SAMPLES,
        found.nonlinear,
    )
    check_values(problem, flat_model)
    return problem


def _blocks(
    model: Any,
    blocks: list[Block],
    params: Iterable[Any] | None,
    precision: str,
    *,
    l2: float | Mapping[str, float],
    precond: Any,
    memory_budget: float | None,
    rng: Any,
    **settings: Any,
) -> BlockProblem:
    """The sum of blocks of squared residuals."""
    if not isinstance(model, nn.Module):
        kind = type(model).__name__
        raise TypeError(f"model: residuals= needs the nn.Module that r is given, not {kind}")
    check_model(model)
    check_block_curvature(settings["curvature"])
    settings["curvature"] = settings["curvature"] or "gauss-newton"
    generator = np.random.default_rng(rng)  # the blocks draw labels and masks of their own
    params = params if params is None or isinstance(params, (str, Tensor)) else list(params)
    terms = []
    for number, block in enumerate(blocks):
        with noting_block(number):
            flat_model = ResidualModel(model, block, params, precision)
            budget = memory_budget or default_budget(flat_model.device)
            samples = Samples(flat_model.data, flat_model.device, flat_model.x0.dtype)
            outputs = flat_model.checked_residuals(
                samples.take(slice(min(PROBE_SAMPLES, samples.n)))[0]
            )
            problem = _of_samples(
                flat_model,
                samples,
                squared_residuals(),
                l2=0.0,
                precond=precond if isinstance(precond, str) else None,
                memory_budget=budget / len(blocks),
                rng=generator,
                loss=None,
                **settings,
            )
        terms.append(Term(problem, block.weight, math.prod(outputs.shape[1:])))
    penalty = _l2_vector(l2, flat_model)
    return BlockProblem(terms, penalty if bool(penalty.any()) else None, precond)


def _plain_function(
    fun: Any, x0: Any, subsets: Any, curvature: Any, l2: Any, precond: Any, precision: str
) -> TorchFunctionProblem:
    """The problem of a function and its x0."""
    if fun is x0:
        raise TypeError(
            "the function is x0 itself: for a module that returns its loss write "
            "from_torch(lambda module: module(batch), x0=net)"
        )
    if not callable(fun):
        raise TypeError(f"beside x0=, expected a function fun(theta), not {type(fun).__name__}")
    if curvature not in (None, "hessian") and not callable(curvature):
        raise ValueError(
            f"curvature={curvature!r} needs a model with outputs and a loss, which a plain "
            "function does not have: leave it out, or give loss and data"
        )
    function = FlatFunction(fun, x0, precision)
    sets = None if subsets is None else as_subsets(subsets)
    return TorchFunctionProblem(function, sets, curvature, _l2_vector(l2, function), precond)


def _require(**arguments: Any) -> None:
    for name, value in arguments.items():
        if value is None:
            raise TypeError(
                f"{name}= is missing: a model needs loss and data; a plain function needs x0="
            )


def _refuse(instead: str, **arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise TypeError(f"{name}= goes with {instead}: leave it out")


def _check_chunk_size(chunk_size: int | None) -> None:
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size={chunk_size!r}: expected at least one sample")


def _sample_loss(loss: Any, samples: Samples, curvature: Any) -> SampleLoss:
    """The loss per sample; its class weights become weights of the samples."""
    sample_loss = as_sample_loss(loss)
    if curvature == "fisher" and sample_loss.draw is None:
        raise ValueError(
            "curvature='fisher' draws labels from the model's likelihood, which "
            f"{type(loss).__name__} does not define: use 'gauss-newton' or 'empirical-fisher'"
        )
    if sample_loss.sample_weights is not None:
        samples.normalize_weights(sample_loss.sample_weights)
    return sample_loss


@dataclass(frozen=True)
class _Findings:
    """What a few samples show of a model.

    Attributes
    ----------
    outputs : Tensor
        Its outputs for them.
    nonlinear : bool
        Whether it is nonlinear in its parameters.
    bytes_per_sample : int
        What a forward pass keeps of a sample for the backward pass.
    max_kept_samples : int
        How many samples' products fit into the memory budget.
    max_gradients : int or None
        How many samples' gradients do; None where the diagonal needs none.
    """

    outputs: Tensor
    nonlinear: bool
    bytes_per_sample: int
    max_kept_samples: int
    max_gradients: int | None

    def max_rows(self, model: FlatModel, samples: Samples) -> int:
        """How many samples a chunk may have."""
        rows = min(self.max_kept_samples, samples.n)
        if model.is_random and self.max_gradients is not None:
            rows = min(rows, self.max_gradients)  # its dropout masks are drawn for a whole chunk
        return rows


def _probe(
    kernels: Kernels, samples: Samples, memory_budget: float | None, *, diagonal: bool
) -> _Findings:
    """Look at the model with a few samples, and set up the kernel of the diagonal."""
    model = kernels.model
    budget = default_budget(model.device) if memory_budget is None else memory_budget
    probe: Chunk = next(samples.chunks(WHOLE, min(PROBE_SAMPLES, samples.n)))
    with model.arithmetic(model.precision), seeded_generators(0, model.device):
        outputs = check_forward_pass(model, probe[0])
        kernels.values_need_grad = differentiates(model, probe[0])
        nonlinear = model.is_nonlinear(probe[0])
        kept = bytes_per_sample(kernels, probe)
        kernel = diagonal_kernel(kernels, probe, budget) if diagonal else None
        kernels.diagonal = kernel
    return _Findings(
        outputs,
        nonlinear,
        kept,
        max_kept_samples=max(1, int(budget // (WORKING_COPIES * kept))),
        max_gradients=None if kernel is None else kernel.max_samples,
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

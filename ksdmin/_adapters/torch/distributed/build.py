"""From a model and the samples of one process to the problem of all processes."""

from __future__ import annotations

import atexit
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from ksdmin._adapters.arguments import Arguments, Block
from ksdmin._adapters.blocks import BlockProblem, Term
from ksdmin._adapters.flat_problem import FlatProblem
from ksdmin._adapters.torch.data.arrays import options_of
from ksdmin._adapters.torch.data.samples import Samples, is_function_of_epoch
from ksdmin._adapters.torch.distributed.link import Link
from ksdmin._adapters.torch.distributed.sums import Shards, Shares
from ksdmin._adapters.torch.problem import TorchProblem
from ksdmin._problem.protocol import Traits
from ksdmin._problem.subsets import Subsets
from ksdmin._problem.values import changed

# the variables that torchrun sets for each process; `env://` reads them
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def as_group(process_group: Any, device: torch.device) -> dist.ProcessGroup | None:
    """The group; None for the default group, initialised if torchrun has started this process.

    The problem must not keep the default group: its threads end with its last reference. One that
    still runs when the interpreter ends aborts the process.
    """
    if not dist.is_available():
        raise RuntimeError("process_group: this build of torch has no torch.distributed")
    if isinstance(process_group, str):
        process_group = _default_group(process_group, device)
    if not isinstance(process_group, dist.ProcessGroup):
        raise TypeError(
            'process_group: expected "auto" or a group of torch.distributed, such as '
            f"torch.distributed.group.WORLD, not {type(process_group).__name__}"
        )
    return None if process_group is dist.group.WORLD else process_group


def asked_for(process_group: Any) -> Any:
    """The argument, if it means several processes; None for an ordinary run.

    "auto" in a process that was not started as one of several is an ordinary run.
    """
    alone = not dist.is_available() or not dist.is_initialized()
    if process_group == "auto" and alone and not any(name in os.environ for name in VARIABLES[:2]):
        return None
    if process_group is None:
        _warn_of_others()
    return process_group


_warned = False


def _warn_of_others() -> None:
    """Warn, once, if a process is one of several but minimises alone."""
    global _warned
    size = os.environ.get("WORLD_SIZE", "")
    if _warned or not size.isdigit() or int(size) < 2:
        return
    _warned = True
    warnings.warn(
        f"This process is one of several (WORLD_SIZE={size}), but from_torch was called without "
        "process_group: each process minimises over its own data, and ends at its own minimum. "
        "Pass process_group='auto' for one run over all samples.",
        UserWarning,
        stacklevel=5,  # the call of from_torch
    )


def _default_group(name: str, device: torch.device) -> Any:
    if name != "auto":
        raise ValueError(
            f'process_group={name!r}: expected "auto", or a group of torch.distributed'
        )
    if not dist.is_initialized():
        missing = [variable for variable in VARIABLES if variable not in os.environ]
        if missing:
            raise RuntimeError(
                'process_group="auto": no process group has been initialised, and the environment '
                f"does not say how (no {', '.join(missing)}). Start the script with torchrun, or "
                "call torch.distributed.init_process_group first, or leave process_group out"
            )
        # Now, because its functions keep the default group with which they are imported for good
        import_module("torch.distributed.nn.functional")
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
        atexit.register(_end_group)
    return dist.group.WORLD


def _end_group() -> None:
    """Nccl warns of a group that is left behind, and gloo's threads abort the process."""
    if dist.is_initialized():
        dist.destroy_process_group()


P = TypeVar("P", bound=FlatProblem)


def unwrapped(model: nn.Module, process_group: Any) -> nn.Module:
    """The model itself, without wrappers for several devices.

    A wrapper would sum gradients again in each backward pass, and cannot sum products.
    """
    if isinstance(model, DistributedDataParallel) and process_group is None:
        raise TypeError(
            "model: DistributedDataParallel without process_group=: each process would minimise "
            "over its own samples only. Pass process_group='auto' (the wrapper is then not "
            "needed), or model.module"
        )
    if isinstance(model, DataParallel):
        raise TypeError(
            "model: DataParallel copies the parameters in every forward pass: pass model.module, "
            "and for several GPUs start one process for each, with process_group='auto'"
        )
    for module in model.modules():
        if {"FullyShardedDataParallel", "FSDPModule"} & {c.__name__ for c in type(module).__mro__}:
            raise TypeError(
                "model: FullyShardedDataParallel keeps a part of the parameters in each process, "
                "but a run needs all of them in each: pass the model without the wrapper"
            )
    inner: nn.Module = model.module if isinstance(model, DistributedDataParallel) else model
    return inner


def of_all_processes(asked: Arguments, make: Callable[[Any], TorchProblem]) -> TorchProblem:
    """The problem over the samples of all processes; `make` makes that of some data.

    A single process has the sums already: its problem is the same as without a group, with the same
    kernels and graphs, and no message is sent.
    """
    if is_function_of_epoch(asked.data):
        raise TypeError(
            "data: a function of the epoch cannot be spread over processes: with process_group= "
            "each process passes its own tensors, Dataset or DataLoader"
        )
    link = link_between(asked)
    problem = _made(link, lambda: make(own_share(asked.data, link)))
    if link.size == 1:
        problem._sums.samples.check_weights()
        return problem
    return share_of(problem, link).spread_over(link)


def blocks_of_all_processes(
    asked: Arguments,
    blocks: Sequence[Block],
    make: Callable[[Sequence[Block]], BlockProblem],
) -> BlockProblem:
    """The same for blocks of residuals: each process adds up its blocks, one message all processes.

    Residuals that take no samples are those of the first process.
    """
    link = link_between(asked)
    takes_samples = [block.data is not None for block in blocks]
    link.require_same(
        {
            "the weights of the blocks of residuals": [block.weight for block in blocks],
            "which of them take samples": takes_samples,
        }
    )

    def own() -> BlockProblem:
        shares = [replace(block, data=own_share(block.data, link)) for block in blocks]
        return make(shares)

    problem = _made(link, own)
    if link.size == 1:
        return problem
    shares = [
        share_of(block, link, has=link.is_first or takes)
        for block, takes in zip(problem._blocks, takes_samples, strict=True)
    ]
    terms = list(map(Term, shares, problem._weights, problem._elements))
    joint = BlockProblem(terms, problem._l2, link.from_first(problem._precond))
    joint.traits = replace(joint.traits, gradient_travels=True)
    return joint.spread_over(link)


def _made(link: Link, make: Callable[[], P]) -> P:
    """The problem that each process makes of its own samples."""
    problem = link.together(make)
    link.require_same({"the number of trainable parameters": problem.x0.numel()})
    return problem


def link_between(asked: Arguments) -> Link:
    """The link between processes that have the same model, and ask for the same."""
    for name in ("curvature", "precond"):
        if callable(getattr(asked, name)):
            raise TypeError(
                f"{name}: a function of your own sees the samples of one process only: with "
                "process_group= pass a name"
            )
    parameters = list(asked.model.parameters())
    if not parameters:
        raise ValueError("model: it has no parameters")
    link = Link(as_group(asked.process_group, parameters[0].device), parameters[0].detach())
    link.require_same(
        {
            "the form of precond": type(asked.precond).__name__,
            "the model": type(asked.model).__name__,
            "the dtype of its parameters": parameters[0].dtype,
            "the shapes of its parameters": [tuple(piece.shape) for piece in parameters],
            "curvature": asked.curvature,
        }
    )
    return link


def own_share(data: Any, link: Link) -> Any:
    """The data of this process; of a DataLoader with a DistributedSampler, its share.

    That sampler repeats samples if the processes would have different numbers; here each sample
    counts once.
    """
    sampler = getattr(data, "sampler", None) if isinstance(data, DataLoader) else None
    if not isinstance(sampler, DistributedSampler):
        return data
    if (sampler.num_replicas, sampler.rank) != (link.size, link.rank):
        raise ValueError(
            f"data: the DistributedSampler is for rank {sampler.rank} of {sampler.num_replicas}, "
            f"but this process is rank {link.rank} of {link.size} in process_group"
        )
    own = range(link.rank, len(data.dataset), link.size)
    return DataLoader(data.dataset, data.batch_size, sampler=own, **options_of(data))


@dataclass(frozen=True)
class Facts:
    """What a process has found out about the model with its own samples."""

    samples: int  # how many it has
    mean_weight: float  # of its samples
    traits: Traits  # of the problem that it has made of them
    # The kind of its kernel for a curvature matrix or a Jacobian, and what that counts as.
    kernel: tuple[str, int] | None
    max_diagonal_samples: int  # how many the diagonal is estimated from


def facts_of(problem: TorchProblem, samples: Samples, count: int) -> Facts:
    """The facts of this process's problem, of whose samples so many count."""
    found = problem._matrix or problem._rows
    kernel = None if found is None else (type(found).__name__, found.products)
    most = problem._sums.max_diagonal_samples
    has_diagonal = problem.traits.has_diagonal
    if isinstance(problem._precond, str):  # with factors, nobody may have asked for it yet
        has_diagonal = problem._sums.diagonal is not None
    traits = replace(problem.traits, has_diagonal=has_diagonal)
    return Facts(count, samples.mean_weight, traits, kernel, most)


def share_of(problem: Any, link: Link, *, has: bool = True) -> TorchProblem:
    """The share of this process in a problem over all samples; it may have none.

    `problem` is the one that this process has made of its own samples.
    """
    sums, samples = problem._sums, problem._sums.samples
    facts = link.gathered(facts_of(problem, samples, samples.n if has else 0))
    sizes = [fact.samples for fact in facts]
    n = sum(sizes)
    samples.set_mean_weight(sum(fact.mean_weight * (fact.samples / n) for fact in facts))
    samples.check_weights()
    traits = joint_traits(facts)
    most = min(fact.max_diagonal_samples for fact in facts)
    precond, seed = link.from_first(problem._precond), link.from_first(sums.seed)
    sums.seed = seed + link.rank  # dropout masks and drawn labels differ between processes
    share: TorchProblem = changed(
        problem,
        x0=link.from_first(problem.x0),
        subsets=Subsets(n),
        traits=traits,
        _precond=precond if traits.has_diagonal else None,
        _matrix=problem._matrix if traits.has_matrix else None,
        _rows=problem._rows if traits.has_jacobian else None,
        _sums=Shares(sums, Shards(samples, sizes, link.rank), link, seed, most),
    )
    return share


def joint_traits(facts: Sequence[Facts]) -> Traits:
    """The traits that hold in all processes, whose samples may have shown different things.

    All get the same traits, because these decide how a run goes. Costs are those of all samples;
    messages do not count.
    """
    traits = [fact.traits for fact in facts]
    alike = len({fact.kernel for fact in facts}) == 1
    has_matrix = alike and traits[0].has_matrix
    return replace(
        traits[0],
        nonlinear=any(each.nonlinear for each in traits),
        has_diagonal=all(each.has_diagonal for each in traits),
        has_factors=all(each.has_factors for each in traits),
        gradient_travels=True,
        has_matrix=has_matrix,
        matrix_cost=max(each.matrix_cost or 0.0 for each in traits) if has_matrix else None,
        has_jacobian=alike and all(each.has_jacobian for each in traits),
        matrix_memory=least([each.matrix_memory for each in traits]),
        product_cost=least([each.product_cost for each in traits]),
    )


def least(numbers: Sequence[float | None]) -> float | None:
    """The least of some numbers; None if one of them is not known."""
    known = [number for number in numbers if number is not None]
    return min(known) if len(known) == len(numbers) else None

"""How much memory a sample takes, how much there is, and how much is free."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ksdmin._adapters.torch.kernels import Chunk, Kernels

# Of the memory: the basis of the Krylov subspace, the caches of torch and other programs need room
# too.
FRACTION = 1 / 4
FALLBACK_BUDGET = 2.0**31  # bytes, where a system does not say how much there is


def free_budget(device: torch.device) -> float:
    """A quarter of the free memory, or 2 GiB: for copies of data, which change no result."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] * FRACTION
    return _pages("SC_AVPHYS_PAGES")


def chunk_budget(device: torch.device) -> float:
    """A quarter of all memory, or 2 GiB: for chunks.

    The size of a chunk decides how sums are rounded. What other programs leave free must not: the
    same seed gives the same run.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1] * FRACTION
    return _pages("SC_PHYS_PAGES")


def _pages(name: str) -> float:
    try:
        return os.sysconf(name) * os.sysconf("SC_PAGE_SIZE") * FRACTION
    except (AttributeError, ValueError):
        return FALLBACK_BUDGET


def bytes_per_sample(kernels: Kernels, chunk: Chunk) -> int:
    """What a forward pass keeps for its backward pass, the parameters left out."""
    try:
        kept = _saved_bytes(kernels, chunk)
    except RuntimeError:  # a model with torch.func.grad or jvp in it takes no hooks
        kept = _computed_bytes(kernels, chunk)
    return max(1, kept // len(chunk[2]))


def _saved_bytes(kernels: Kernels, chunk: Chunk) -> int:
    inputs, targets, w = chunk
    parameters = kernels.model.leaves(kernels.model.x0)
    own = {piece.untyped_storage().data_ptr() for piece in parameters}
    kept: dict[tuple[int, torch.Size], Tensor] = {}

    def note(saved: Tensor) -> Tensor:
        """Without its graph: one that holds its own outputs is never freed."""
        bare = saved.detach()
        if saved.untyped_storage().data_ptr() not in own:
            kept[saved.data_ptr(), saved.shape] = bare
        return bare

    with torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved):
        kernels.total_loss(kernels.model(parameters, inputs), targets, w)
    return sum(saved.numel() * saved.element_size() for saved in kept.values())


class _ComputedBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the bytes of all that is computed: at least what is kept of it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.total += sum(leaf.nbytes for leaf in tree_leaves(out) if isinstance(leaf, Tensor))
        return out


def _computed_bytes(kernels: Kernels, chunk: Chunk) -> int:
    inputs, targets, w = chunk
    computed = _ComputedBytes()
    with computed:
        kernels.total_loss(
            kernels.model(kernels.model.leaves(kernels.model.x0), inputs), targets, w
        )
    return computed.total

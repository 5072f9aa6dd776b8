"""How much memory a sample takes, how much there is, and how much is free."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
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


class SavedBytes:
    """What is kept for a backward pass, within `watching`, but for the parameters.

    Parameters
    ----------
    parameters : sequence of Tensor
        Those of the pass.

    Attributes
    ----------
    was_read : bool
        Whether there was a backward pass, too.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.was_read = False
        self._own = {piece.untyped_storage().data_ptr() for piece in parameters}
        self._kept: dict[tuple[int, torch.Size], Tensor] = {}

    def watching(self) -> AbstractContextManager[Any]:
        """Note what is kept. Over such a graph nothing can be differentiated twice."""
        return torch.autograd.graph.saved_tensors_hooks(self._note, self._read)

    def _note(self, saved: Tensor) -> Tensor:
        """Without its graph: one that holds its own outputs is never freed."""
        bare = saved.detach()
        if saved.untyped_storage().data_ptr() not in self._own:
            self._kept[saved.data_ptr(), saved.shape] = bare
        return bare

    def _read(self, saved: Tensor) -> Tensor:
        self.was_read = True
        return saved

    @property
    def total(self) -> int:
        """The bytes."""
        return sum(saved.numel() * saved.element_size() for saved in self._kept.values())


def saved_bytes(kernels: Kernels, z: Tensor, chunk: Chunk, saved: SavedBytes | None) -> int | None:
    """What a forward pass and its loss keep for a sample; None where it takes no hooks.

    `saved` has what the pass itself has kept, which gave the outputs z.
    """
    if saved is None:
        return None
    try:
        with saved.watching():
            kernels.total_loss(z, chunk[1], chunk[2])
    except Exception:  # what a loss raises is told later, with its targets
        return None
    return max(1, saved.total // len(chunk[2]))


def bytes_per_sample(kernels: Kernels, chunk: Chunk) -> int:
    """The same by a pass of its own; where that takes no hooks, all bytes that it computes."""
    inputs, targets, w = chunk
    parameters = kernels.model.leaves(kernels.model.x0)
    saved, computed = SavedBytes(parameters), _ComputedBytes()

    def run() -> None:
        kernels.total_loss(kernels.model(parameters, inputs), targets, w)

    try:
        with saved.watching():
            run()
        kept = saved.total
    except RuntimeError:  # a model with torch.func.grad or jvp in it
        with computed:
            run()
        kept = computed.total
    return max(1, kept // len(w))


class _ComputedBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the bytes of all that is computed: at least what is kept of it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.total += sum(leaf.nbytes for leaf in tree_leaves(out) if isinstance(leaf, Tensor))
        return out

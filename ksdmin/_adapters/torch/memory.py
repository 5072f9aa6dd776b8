"""How much memory a sample takes, and how much is free."""

from __future__ import annotations

import os

import torch
from torch import Tensor

from ksdmin._adapters.torch.kernels import Chunk, Kernels

# Of the free memory: the basis of the Krylov subspace, the caches of torch and other programs need
# room too.
FREE_FRACTION = 1 / 4
FALLBACK_BUDGET = 2.0**31  # bytes, where a system does not say how much is free


def default_budget(device: torch.device) -> float:
    """A quarter of the memory that is free, or 2 GiB."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] * FREE_FRACTION
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * FREE_FRACTION
    except (AttributeError, ValueError):
        return FALLBACK_BUDGET


def bytes_per_sample(kernels: Kernels, chunk: Chunk) -> int:
    """What a forward pass keeps for its backward pass, the parameters left out."""
    inputs, targets, w = chunk
    parameters = kernels.model.leaves(kernels.model.x0)
    own = {piece.untyped_storage().data_ptr() for piece in parameters}
    kept: dict[tuple[int, torch.Size], Tensor] = {}

    def note(saved: Tensor) -> None:
        """Saves nothing for the graph: one that holds its own outputs is never freed."""
        if saved.untyped_storage().data_ptr() not in own:
            kept[saved.data_ptr(), saved.shape] = saved.detach()

    with torch.autograd.graph.saved_tensors_hooks(note, lambda nothing: nothing):
        kernels.total_loss(kernels.model(parameters, inputs), targets, w)
    return max(1, sum(saved.numel() * saved.element_size() for saved in kept.values()) // len(w))

"""What a model costs: operations, counted on a few samples and never timed, and memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from ksdmin._adapters.model_problem import product_cost
from ksdmin._adapters.torch.kernels import Chunk, Kernels
from ksdmin._adapters.trees import tree_leaves
from ksdmin._problem.protocol import CALL_COST

# (Gauss-Newton products are not counted: torch 2.13 may end the process when a model with
# nested torch.func.hessian is differentiated once more under a dispatch mode.)
# The overhead of a function: 12 microseconds on a CPU; on a GPU, in a captured graph, 3, in which
# it could do this many operations in float64. A gradient has as many functions as about 2.5
# forward passes.
FUNCTION, FUNCTION_ON_DEVICE = 2.5e5, 1.5e8
FUNCTIONS_OF_GRADIENT = 2.5
# The overhead of a call with unknown functions on a GPU; a CPU has CALL_COST.
CALL_ON_DEVICE = 2e10


@dataclass(frozen=True)
class Costs:
    """In floating-point operations of a large matrix product."""

    product: float | None  # of a product, for each sample; None where there is nothing to count
    call: float  # of a call, beside its work
    on_device: bool = False  # whether a device does the work while it is told what to do

    @property
    def least_set(self) -> float:
        """How many samples a GPU processes during the launch; 0 on a CPU."""
        return self.call / self.product if self.on_device and self.product else 0.0


def counted_value(kernels: Kernels, probe: Chunk) -> Computed | None:
    """The operations of a value; None if they cannot be counted.

    Also finds out whether the forward pass itself needs gradients (torch.autograd.grad).
    """
    model = kernels.model
    while True:
        counted = Computed()
        try:
            with counted, model.restored_randomness():
                kernels.value(model.x0, probe)
            return counted
        except Exception:  # a function that a dispatch mode does not allow, or no gradients
            if kernels.values_need_grad:
                return None
        try:
            with torch.no_grad(), model.restored_randomness():
                model(model.split(model.x0), probe[0])
            return None
        except RuntimeError:  # "does not require grad": it works with gradients, as was seen before
            kernels.values_need_grad = True


def costs_of(kernels: Kernels, counted: Computed | None, samples: int) -> Costs:
    """The costs of a model.

    `counted` has the operations of the value of so many samples; None for a model that is linear in
    its parameters, whose costs the core knows.
    """
    on_device = bool(kernels.model.x0.is_cuda)
    unknown = Costs(None, CALL_ON_DEVICE if on_device else CALL_COST, on_device)
    if not kernels.curvature or kernels.fault or counted is None:
        return unknown
    function = FUNCTION_ON_DEVICE if on_device else FUNCTION
    call = FUNCTIONS_OF_GRADIENT * function * counted.functions
    product = product_cost(counted.products, counted.elements, samples)
    return Costs(product, call, on_device) if product else unknown


class Computed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts torch's functions, the operations of products and convolutions, other elements.

    And the bytes of all that is computed: at least what is kept of it.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.functions, self.products, self.elements, self.bytes = 0, 0.0, 0, 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """To hide it from its compiler torch would import that: 1.5 seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func._overloadpacket)
        self.functions += 1
        self.bytes += sum(leaf.nbytes for leaf in tree_leaves(out) if isinstance(leaf, Tensor))
        if formula is not None:
            self.products += formula(*args, **(kwargs or {}), out_val=out)
        elif isinstance(out, Tensor) and not func.is_view:
            self.elements += out.numel()
        return out

    def watching(self) -> Computed:
        """Record what is computed."""
        return self


# How much memory a sample takes, how much memory there is, and how much is free


# Share of the memory: the Krylov basis, torch's caches and other programs need memory, too.
FRACTION = 1 / 4
FALLBACK_BUDGET = 2.0**31  # bytes, if the system does not say how much there is


def free_budget(device: torch.device) -> float:
    """A quarter of the free memory, or 2 GiB; for copies of data, which change no result."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] * FRACTION
    return _pages("SC_AVPHYS_PAGES")


def chunk_budget(device: torch.device) -> float:
    """A quarter of all memory, or 2 GiB; for chunks.

    The size of a chunk changes the rounding of sums, so it must not depend on other programs: the
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
    """What is kept for a backward pass, within `watching`, without the parameters."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.was_read = False  # whether there was a backward pass, too
        self._own = {piece.untyped_storage().data_ptr() for piece in parameters}
        self._kept: dict[tuple[int, torch.Size], Tensor] = {}

    def watching(self) -> AbstractContextManager[Any]:
        """Record what is kept. Such a graph cannot be differentiated twice."""
        return torch.autograd.graph.saved_tensors_hooks(self._note, self._read)

    def _note(self, saved: Tensor) -> Tensor:
        """Record a tensor without its graph: a graph that holds its own outputs is never freed."""
        bare = saved.detach()
        if saved.untyped_storage().data_ptr() not in self._own:
            self._kept[saved.data_ptr(), saved.shape] = bare
        return bare

    def _read(self, saved: Tensor) -> Tensor:
        self.was_read = True
        return saved

    @property
    def bytes(self) -> int:
        """The bytes."""
        return sum(saved.numel() * saved.element_size() for saved in self._kept.values())


Kept = SavedBytes | Computed
"""What is kept for a backward pass; where a model takes no hooks, all that it computes."""


def bytes_per_sample(kernels: Kernels, z: Tensor, chunk: Chunk, kept: Kept) -> int:
    """What a forward pass and its loss keep for a sample; `kept` knows of that with outputs z."""
    with suppress(Exception), kept.watching():  # an error of the loss is reported later
        kernels.total_loss(z, chunk[1], chunk[2])
    return max(1, kept.bytes // len(chunk[2]))

"""What a model's products cost, counted on a few samples, never timed: the same in every run."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from ksdmin._adapters.torch.kernels import Chunk, Kernels

# An operation of a net's own matrix products, which are small, in operations of a large one: 2 to 3
# on a processor, for nets of 481 to 9,873 parameters (20 for one with hardly any matrix product).
SMALL_PRODUCTS = 3.0
# Beside its work, a call costs some ten microseconds on a processor; on a device, which is told
# what to do operation by operation, or waits for its own memory, no less than about half a
# millisecond, in which it could do this many operations in float64.
CALL, CALL_ON_DEVICE = 1e6, 2e10


@dataclass(frozen=True)
class Costs:
    """In floating-point operations of a large matrix product.

    Attributes
    ----------
    product : float or None
        Of a product, for each sample; None where there is nothing to count.
    call : float
        Of a call, beside its work.
    """

    product: float | None
    call: float

    @property
    def least_set(self) -> float:
        """How many samples a device works on while it is told what to do; 0 on a processor."""
        on_device = self.call >= CALL_ON_DEVICE
        return self.call / self.product if on_device and self.product else 0.0


def costs_of(kernels: Kernels, probe: Chunk, nonlinear: bool) -> Costs:
    """Of a model; for one that is linear in its parameters, the core knows them."""
    model = kernels.model
    call = CALL_ON_DEVICE if model.x0.is_cuda else CALL
    if not nonlinear or not kernels.curvature or kernels.fault:
        return Costs(None, call)
    counter = FlopCounterMode(display=False)
    try:
        with counter, model.restored_randomness():
            kernels.product(model.x0, probe)(torch.ones_like(model.x0))
    except Exception:  # what cannot be counted, or a model that has no product after all
        return Costs(None, call)
    return Costs(SMALL_PRODUCTS * counter.get_total_flops() / len(probe[2]) or None, call)

"""What a model's products cost, counted on a few samples, never timed: the same in every run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from ksdmin._adapters.torch.kernels import Chunk, Kernels

# A Gauss-Newton product has the operations of so many forward passes: two passes back through the
# model. (Counted: 5 to 7, and 2.4 for a net of one layer that is differentiated twice in its
# inputs. The products themselves are not counted: torch 2.13 may end the process when a model with
# nested torch.func.hessian is differentiated once more under a dispatch mode.)
FORWARD_PASSES = 6.0
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
    try:
        with _Operations() as counted, model.restored_randomness():
            kernels.value(model.x0, probe)
    except Exception:  # an operation that a dispatch mode does not take
        return Costs(None, call)
    forward = counted.total / len(probe[2])
    return Costs(SMALL_PRODUCTS * FORWARD_PASSES * forward or None, call)


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the floating-point operations of matrix products and convolutions."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.total += formula(*args, **(kwargs or {}), out_val=out)
        return out

"""What a model's products cost, counted on a few samples, never timed: the same in every run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from ksdmin._adapters.torch.flat_model import differentiates
from ksdmin._adapters.torch.kernels import Chunk, Kernels
from ksdmin._problem.protocol import CALL_COST

# A Gauss-Newton product has the operations of so many forward passes: two passes back through the
# model. (Counted: 5 to 7, and 2.4 for a net of one layer that is differentiated twice in its
# inputs. The products themselves are not counted: torch 2.13 may end the process when a model with
# nested torch.func.hessian is differentiated once more under a dispatch mode.)
FORWARD_PASSES = 6.0
# In operations of a large matrix product: one of a net's own matrix products, which are small (2 to
# 3 on a processor, for nets of 481 to 9,873 parameters), and an element that any other function
# writes (about 5 ns on a processor; on a device, which waits for its memory, some picoseconds).
SMALL_PRODUCT, ELEMENT = 3.0, 100.0
# To begin a function: 12 microseconds on a processor; on a device, in a captured graph, 3, in which
# it could do this many operations in float64. A gradient has the functions of about 2.5 forward
# passes.
FUNCTION, FUNCTION_ON_DEVICE = 2.5e5, 1.5e8
FUNCTIONS_OF_GRADIENT = 2.5
# The same of a call of unknown functions, where a processor has CALL_COST.
CALL_ON_DEVICE = 2e10


@dataclass(frozen=True)
class Costs:
    """In floating-point operations of a large matrix product.

    Attributes
    ----------
    product : float or None
        Of a product, for each sample; None where there is nothing to count.
    call : float
        Of a call, beside its work.
    on_device : bool
        Whether a device does the work while it is told what to do.
    """

    product: float | None
    call: float
    on_device: bool = False

    @property
    def least_set(self) -> float:
        """How many samples a device works on while it is told what to do; 0 on a processor."""
        return self.call / self.product if self.on_device and self.product else 0.0


def counted_value(kernels: Kernels, probe: Chunk) -> Functions | None:
    """What a value is made of; None where it cannot be counted.

    Also finds out whether the forward pass needs gradients itself (torch.autograd.grad in it).
    """
    counted = _counted(kernels, probe)
    if counted is None:
        kernels.values_need_grad = differentiates(kernels.model, probe[0])
        counted = _counted(kernels, probe) if kernels.values_need_grad else None
    return counted


def _counted(kernels: Kernels, probe: Chunk) -> Functions | None:
    try:
        counted = Functions()
        with counted, kernels.model.restored_randomness():
            kernels.value(kernels.model.x0, probe)
    except Exception:  # a function that a dispatch mode does not take, or gradients are missing
        return None
    return counted


def costs_of(kernels: Kernels, counted: Functions | None, samples: int, nonlinear: bool) -> Costs:
    """Of a model; for one that is linear in its parameters, the core knows them.

    `counted` has what the value of so many samples is made of.
    """
    on_device = bool(kernels.model.x0.is_cuda)
    unknown = Costs(None, CALL_ON_DEVICE if on_device else CALL_COST, on_device)
    if not nonlinear or not kernels.curvature or kernels.fault or counted is None:
        return unknown
    forward = (SMALL_PRODUCT * counted.products + ELEMENT * counted.elements) / samples
    function = FUNCTION_ON_DEVICE if on_device else FUNCTION
    call = FUNCTIONS_OF_GRADIENT * function * counted.functions
    return Costs(FORWARD_PASSES * forward, call, on_device) if forward else unknown


class Functions(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts torch's functions, the operations of products and convolutions, other elements."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.functions, self.products, self.elements = 0, 0.0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func._overloadpacket)
        self.functions += 1
        if formula is not None:
            self.products += formula(*args, **(kwargs or {}), out_val=out)
        elif isinstance(out, Tensor) and not func.is_view:
            self.elements += out.numel()
        return out

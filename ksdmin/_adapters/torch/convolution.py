"""Convolutions with cheap second derivatives.

Torch differentiates the backward pass of a convolution by a convolution whose kernel is a whole
image, and computes all results, needed or not: on a GPU a product then costs 6 to 12 gradients.
Here each part is one ordinary convolution, or one part of its backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.overrides import TorchFunctionMode

# The functions of torch, with the number of image axes and whether they are transposed
_FUNCTIONS: dict[Callable[..., Any], tuple[int, bool]] = {
    torch.conv1d: (1, False),
    torch.conv2d: (2, False),
    torch.conv3d: (3, False),
    torch.conv_transpose1d: (1, True),
    torch.conv_transpose2d: (2, True),
    torch.conv_transpose3d: (3, True),
}
DELTA, IMAGE, WEIGHT = range(3)
Geometry = tuple[list[int], list[int], list[int], bool, list[int], int]
"""Stride, padding, dilation, whether it is transposed, output padding and groups, as in aten."""


class LeanConvolutions(TorchFunctionMode):
    """Within it, a model uses the convolutions below; `seen` says whether there were any.

    Parameters
    ----------
    jacobian : bool
        The backward pass will be differentiated in what it is given only, for J v, not in the
        activations and weights: these count as constants in it.
    """

    def __init__(self, *, jacobian: bool) -> None:
        super().__init__()
        self.seen, self._jacobian = False, jacobian

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in _FUNCTIONS:
            return func(*args, **kwargs)
        axes, transposed = _FUNCTIONS[func]
        found = _arguments(axes, transposed, *args, **kwargs)
        if found is None:
            return func(*args, **kwargs)
        self.seen = True
        image, weight, bias, geometry = found
        image, weight = _autocast(image), _autocast(weight)
        out = _slope(DELTA, geometry, None, image, weight, constants=self._jacobian)
        return out if bias is None else out + _autocast(bias).reshape(-1, *[1] * axes)


def _arguments(
    axes: int,
    transposed: bool,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    *rest: Any,
    **named: Any,
) -> tuple[Tensor, Tensor, Tensor | None, Geometry] | None:
    """The arguments of a call, in aten's order; None if the call is left to torch."""
    names = ("output_padding", "groups", "dilation") if transposed else ("dilation", "groups")
    given = dict(zip(names, rest, strict=False)) | named
    dilation = _per_axis(given.get("dilation", 1), axes)
    if isinstance(padding, str):
        spans = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        padding = 0 if padding == "valid" else [span // 2 for span in spans]
        if padding and any(span % 2 for span in spans):  # torch pads one side more
            return None
    if input.ndim != axes + 2:  # a single image
        return None
    geometry = (
        _per_axis(stride, axes),
        _per_axis(padding, axes),
        dilation,
        transposed,
        _per_axis(given.get("output_padding", 0), axes),
        int(given.get("groups", 1)),
    )
    return input, weight, bias, geometry


def _per_axis(size: Any, axes: int) -> list[int]:
    sizes = [int(one) for one in size] if isinstance(size, (tuple, list)) else [int(size)]
    return sizes * axes if len(sizes) == 1 else sizes


def _autocast(tensor: Tensor) -> Tensor:
    """The tensor in autocast's dtype for convolutions, if autocast is on."""
    kind = tensor.device.type
    return tensor.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else tensor


class _Slope(Function):
    """The slope of <delta, convolution of image and weight> in one of these three.

    It is linear in each of the other two. Their own slopes are of the same kind: the tangent takes
    the place of the first. (Of that one only the shape matters, and for delta not even this.)
    """

    @staticmethod
    def forward(ctx: Any, of: int, geometry: Geometry, constants: bool, *three: Any) -> Tensor:
        ctx.save_for_backward(*(None if i == of else one for i, one in enumerate(three)))
        ctx.of, ctx.geometry, ctx.constants = of, geometry, constants
        delta, image, weight = three
        if of == DELTA:
            out: Tensor = torch.ops.aten.convolution(image, weight, None, *geometry)
            return out
        mask = [of == IMAGE, of == WEIGHT, False]
        slopes = torch.ops.aten.convolution_backward(delta, image, weight, None, *geometry, mask)
        slope: Tensor = slopes[of - 1]
        return slope

    @staticmethod
    def backward(ctx: Any, tangent: Tensor) -> Any:
        three = [_bare(one) if ctx.constants else one for one in ctx.saved_tensors]
        three[ctx.of] = tangent
        slopes = (
            _slope(of, ctx.geometry, *three) if needed else None
            for of, needed in enumerate(ctx.needs_input_grad[3:])
        )
        return None, None, None, *slopes


def _slope(of: int, geometry: Geometry, *three: Tensor | None, constants: bool = False) -> Tensor:
    used = (_bare(one) if i == of else one for i, one in enumerate(three))
    out: Tensor = _Slope.apply(of, geometry, constants, *used)  # type: ignore[no-untyped-call]
    return out


def _bare(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.detach()

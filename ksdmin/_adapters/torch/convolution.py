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
        out: Tensor = _convolution(image, weight, geometry, self._jacobian)
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


def _convolve(image: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    out: Tensor = torch.ops.aten.convolution(image, weight, None, *geometry)
    return out


def _backward(
    delta: Tensor, image: Tensor, weight: Tensor, geometry: Geometry, which: int
) -> Tensor:
    """The gradient in the image (0) or in the weight (1)."""
    mask = [which == 0, which == 1, False]
    slopes = torch.ops.aten.convolution_backward(delta, image, weight, None, *geometry, mask)
    slope: Tensor = slopes[which]
    return slope


# The same three, differentiable. Only the shape of the image in the first slope, and of the weight
# in the second, matters.


def _convolution(
    image: Tensor, weight: Tensor, geometry: Geometry, constants: bool = False
) -> Tensor:
    out: Tensor = _Convolution.apply(image, weight, geometry, constants)  # type: ignore[no-untyped-call]
    return out


def _image_slope(delta: Tensor, image: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    out: Tensor = _ImageSlope.apply(delta, image, weight, geometry)  # type: ignore[no-untyped-call]
    return out


def _weight_slope(delta: Tensor, image: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    out: Tensor = _WeightSlope.apply(delta, image, weight, geometry)  # type: ignore[no-untyped-call]
    return out


class _Convolution(Function):
    """Bilinear in image and weight."""

    @staticmethod
    def forward(
        ctx: Any, image: Tensor, weight: Tensor, geometry: Geometry, constants: bool
    ) -> Tensor:
        ctx.save_for_backward(image, weight)
        ctx.geometry, ctx.constants = geometry, constants
        return _convolve(image, weight, geometry)

    @staticmethod
    def backward(ctx: Any, delta: Tensor) -> Any:
        image, weight = ctx.saved_tensors
        if ctx.constants:
            image, weight = image.detach(), weight.detach()
        at = delta, image, weight, ctx.geometry
        of_image = _image_slope(*at) if ctx.needs_input_grad[0] else None
        of_weight = _weight_slope(*at) if ctx.needs_input_grad[1] else None
        return of_image, of_weight, None, None


class _ImageSlope(Function):
    """Bilinear in delta and weight."""

    @staticmethod
    def forward(
        ctx: Any, delta: Tensor, image: Tensor, weight: Tensor, geometry: Geometry
    ) -> Tensor:
        ctx.save_for_backward(delta, weight)
        ctx.geometry = geometry
        return _backward(delta, image, weight, geometry, 0)

    @staticmethod
    def backward(ctx: Any, tangent: Tensor) -> Any:
        (delta, weight), geometry = ctx.saved_tensors, ctx.geometry
        need_delta, _, need_weight, _ = ctx.needs_input_grad
        of_delta = _convolution(tangent, weight, geometry) if need_delta else None
        of_weight = _weight_slope(delta, tangent, weight, geometry) if need_weight else None
        return of_delta, None, of_weight, None


class _WeightSlope(Function):
    """Bilinear in delta and image."""

    @staticmethod
    def forward(
        ctx: Any, delta: Tensor, image: Tensor, weight: Tensor, geometry: Geometry
    ) -> Tensor:
        ctx.save_for_backward(delta, image)
        ctx.geometry = geometry
        return _backward(delta, image, weight, geometry, 1)

    @staticmethod
    def backward(ctx: Any, tangent: Tensor) -> Any:
        (delta, image), geometry = ctx.saved_tensors, ctx.geometry
        need_delta, need_image, _, _ = ctx.needs_input_grad
        of_delta = _convolution(image, tangent, geometry) if need_delta else None
        of_image = _image_slope(delta, image, tangent, geometry) if need_image else None
        return of_delta, of_image, None, None

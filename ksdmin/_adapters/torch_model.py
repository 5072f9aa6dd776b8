"""A torch module as a function of one flat vector."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

PRECISIONS = ("highest", "high", "bfloat16")


class FlatModel:
    """`model` with its trainable parameters in one vector; it sees views of that vector.

    Parameters
    ----------
    model : nn.Module
        Its parameters that require a gradient are the variables; tied ones count once.
    names : iterable of str, optional
        Only these parameters are variables.
    precision : {"highest", "high", "bfloat16"}
        How float32 products of matrices are computed: exactly, with TF32, or in bfloat16
        through autocast.
    """

    def __init__(self, model: nn.Module, names: Iterable[str] | None, precision: str) -> None:
        if precision not in PRECISIONS:
            raise ValueError(f"precision={precision!r}: expected one of {PRECISIONS}")
        self.model, self.precision = model, precision
        self._names, parameters = _select(model, names)
        self.shapes = [tuple(p.shape) for p in parameters]
        self.sizes = [p.numel() for p in parameters]
        self.x0 = torch.cat([p.detach().reshape(-1) for p in parameters])
        self.device = self.x0.device
        self.bytes = self.x0.numel() * self.x0.element_size()

    def __call__(self, parameters: list[Tensor], inputs: Any) -> Tensor:
        """The outputs."""
        arguments = inputs if isinstance(inputs, tuple) else (inputs,)
        named = dict(zip(self._names, parameters, strict=True))
        outputs: Tensor = torch.func.functional_call(self.model, named, arguments)
        return outputs

    def split(self, x: Tensor) -> list[Tensor]:
        """The parameters as views of the flat vector."""
        pieces = torch.split(x, self.sizes)
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    def leaves(self, x: Tensor) -> list[Tensor]:
        """The parameters as views of the flat vector that collect gradients."""
        return [piece.detach().requires_grad_() for piece in self.split(x)]

    def slices(self) -> dict[str, slice]:
        """Where each parameter lies in the flat vector."""
        ends = torch.tensor(self.sizes).cumsum(0).tolist()
        return {
            name: slice(end - size, end)
            for name, size, end in zip(self._names, self.sizes, ends, strict=True)
        }

    def load(self, x: Tensor) -> None:
        """Write a flat vector into the module."""
        parameters = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, piece in zip(self._names, self.split(x), strict=True):
                parameters[name].copy_(piece)

    @contextmanager
    def arithmetic(self) -> Iterator[None]:
        """The precision asked for, and attention that can be differentiated twice."""
        cuda, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        before = cuda.allow_tf32, cudnn.allow_tf32
        with ExitStack() as stack:
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            if self.precision == "bfloat16":
                stack.enter_context(torch.autocast(self.device.type, torch.bfloat16))
            cuda.allow_tf32 = cudnn.allow_tf32 = self.precision == "high"
            try:
                yield
            finally:
                cuda.allow_tf32, cudnn.allow_tf32 = before


def flat(pieces: Iterable[Tensor | None], shapes: list[tuple[int, ...]], like: Tensor) -> Tensor:
    """One vector of all pieces; a parameter that nothing depends on counts as zeros."""
    return torch.cat(
        [
            like.new_zeros(shape).reshape(-1) if piece is None else piece.reshape(-1)
            for piece, shape in zip(pieces, shapes, strict=True)
        ]
    )


def _select(model: nn.Module, names: Iterable[str] | None) -> tuple[list[str], list[Tensor]]:
    every: Mapping[str, Tensor] = dict(model.named_parameters())
    if names is None:
        chosen = [name for name, parameter in every.items() if parameter.requires_grad]
    else:
        chosen = list(names)
        missing = [name for name in chosen if name not in every]
        if missing:
            raise ValueError(f"params: the model has no parameter {', '.join(missing)}")
    if not chosen:
        raise ValueError("the model has no trainable parameter: there is nothing to minimise over")
    parameters = [every[name] for name in chosen]
    kinds = {(parameter.dtype, parameter.device) for parameter in parameters}
    if len(kinds) > 1:
        raise ValueError(
            "the trainable parameters must share one dtype and device, found "
            + ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
        )
    dtype = parameters[0].dtype
    if dtype not in (torch.float32, torch.float64):
        raise TypeError(
            f"the parameters are {dtype}; expected float32 or float64 (for bfloat16 arithmetic "
            "keep float32 parameters and pass precision='bfloat16')"
        )
    return chosen, parameters

"""Residuals of tensors for a fit on the host: values and Jacobian are computed on their device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ksdmin._adapters.array_function import ArrayFunction
from ksdmin._adapters.names import Names
from ksdmin._adapters.torch.flat_model import names_of
from ksdmin._adapters.torch.plain_function import NO_GRAPH, FlatFunction
from ksdmin._adapters.trees import tree_leaves
from ksdmin._problem.arrays import Small, to_host

# Numbers of a Jacobian that are made at once: the caches of a processor, the memory of a device.
ENTRIES_AT_ONCE, ENTRIES_ON_DEVICE = 2**22, 2**26
KEPT = {"retain_graph": True, "materialize_grads": True}


class HostFunction(ArrayFunction):
    """A function of tensors; of a module as x0, the parameters are those of the point."""

    def __init__(self, fun: Any, x0: Any) -> None:
        self._function = FlatFunction(fun, x0)
        self._like = self._function.x0
        self._dtype = self._like.dtype  # float64, once the values are: then x has to be, too
        self._batched = True  # whether vmap takes its derivatives
        self.x0 = to_host(self._like)

    @staticmethod
    def like(values: Any, array: Tensor) -> Tensor:
        return torch.as_tensor(values, dtype=torch.float64, device=array.device)

    def __call__(self, x: Small) -> Any:
        with self._function.arithmetic("highest"):  # with gradients: it may take some itself
            made = self._function.called(self._on_device(x))
        if not any(isinstance(leaf, Tensor) for leaf in tree_leaves(made)):
            return made  # of numpy, say: who takes it looks at it
        return self._noted(_joined(made)).detach().cpu().numpy()

    def jacobian(self, x: Small) -> Any:
        """The Jacobian: by columns where there are fewer of them than rows.

        These are derivatives of J^T u, which is linear in u. So all that is asked of the function
        is what a backward pass asks, and it may differentiate by ``torch.autograd.grad`` itself.
        """
        function = self._function
        with function.arithmetic("highest"):
            leaf = self._on_device(x).requires_grad_()
            pieces = function.split(leaf.detach().requires_grad_()) if function.recomputes else []
            values = self._noted(_joined(function.called(leaf)))
            if not values.requires_grad:
                raise ValueError(NO_GRAPH)
            shape = len(values), len(leaf)
            if shape[0] < shape[1]:
                return self._by_rows(pieces, values, leaf, shape)
            u = torch.zeros_like(values, requires_grad=True)
            (slopes,) = function.derivatives(pieces, values, u, of=leaf, create_graph=True)
            if not slopes.requires_grad:  # a function of the user's own with one derivative
                return self._by_rows(pieces, values, leaf, shape)
            return self._by_rows(pieces, slopes, u, shape).T

    def _by_rows(
        self, pieces: list[Tensor], y: Tensor, leaf: Tensor, shape: tuple[int, int]
    ) -> Any:
        """The derivative of each entry of y, as rows; many at once, where vmap takes them."""
        most = ENTRIES_ON_DEVICE if y.is_cuda else ENTRIES_AT_ONCE
        size, rows = max(1, most // max(shape)) if self._batched else 1, []
        for start in range(0, len(y), size):
            units = torch.zeros(min(size, len(y) - start), len(y), dtype=y.dtype, device=y.device)
            units.diagonal(start).fill_(1)
            try:
                along = units if self._batched else units[0]
                (found,) = self._function.derivatives(
                    pieces, y, along, of=leaf, is_grads_batched=self._batched, **KEPT
                )
                rows.append(found.reshape(-1, len(leaf)))
            except RuntimeError:
                if not self._batched:
                    raise
                self._batched = False
                return self._by_rows(pieces, y, leaf, shape)
        return torch.cat(rows).detach().cpu().numpy()

    def given(self, x: Small) -> Any:
        """A vector in the form of x0; of a module a dict of tensors by name."""
        return self._function.unflatten(self._on_device(x))

    def names(self) -> Names:
        return names_of(self._function)

    @property
    def eps(self) -> float:
        return float(torch.finfo(self._dtype).eps)

    def _on_device(self, x: Small) -> Tensor:
        return torch.as_tensor(np.array(x), dtype=self._dtype, device=self._like.device)

    def _noted(self, values: Tensor) -> Tensor:
        if values.dtype == torch.float64:
            self._dtype = torch.float64
        return values


def _joined(values: Any) -> Tensor:
    """What the function returned, as one vector."""
    leaves = tree_leaves(values)
    if not all(isinstance(leaf, Tensor) and not leaf.is_complex() for leaf in leaves):
        found = {str(getattr(leaf, "dtype", type(leaf).__name__)) for leaf in leaves}
        kinds = ", ".join(sorted(found))
        raise TypeError(
            f"fun returned {kinds}: expected the residuals as a tensor of real numbers, or a dict, "
            "list or tuple of tensors"
        )
    return torch.cat([leaf.reshape(-1) for leaf in leaves])

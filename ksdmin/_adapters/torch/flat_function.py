"""A function of tensors, or of a module, as one of a flat vector."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from ksdmin._adapters.arguments import noting_samples
from ksdmin._adapters.torch.flat_model import FlatModel
from ksdmin._adapters.torch.in_double import doubled
from ksdmin._adapters.trees import dotted, paths, rebuilt

NO_GRAPH = (
    "the function's value does not depend on x0's tensors, as far as autograd knows: use the "
    "argument (theta) in it, and neither .detach(), .item(), numpy nor torch.no_grad()"
)


class FlatFunction(FlatModel):
    """A function of tensors as one of a flat vector.

    Parameters
    ----------
    fun : callable
        ``fun(theta)`` or ``fun(theta, idx)``.
    x0 : Tensor, module, or nested dict, list or tuple of tensors
        What `theta` looks like. Parameters that require no gradient stay as they are.
    precision : {"highest", "high", "bfloat16"}
        As in :class:`FlatModel`.
    """

    def __init__(self, fun: Callable[..., Any], x0: Any, precision: str = "highest") -> None:
        self._fun, self._holder = fun, _Holder(x0)
        super().__init__(self._holder, None, precision)
        self.modes.add(fun)
        self.recomputes = self._holder.module is not None  # it may, and this costs little
        if not self.x0.numel():
            raise ValueError("x0 is empty: there is nothing to minimise over")

    def in_double(self) -> FlatFunction:
        """The same function from a copy of x0 in float64."""
        with self.modes.in_force():  # the copy keeps them
            if self._holder.module is not None:
                return FlatFunction(self._fun, doubled(self._holder.module))
            own = {f"tensors.{i}": tensor for i, tensor in enumerate(self._holder.tensors)}
            x0 = self._holder.rebuilt({name: _in_double(tensor) for name, tensor in own.items()})
            return FlatFunction(self._fun, x0)

    def value(self, x: Tensor, *idx: Any) -> Tensor:
        """The value at a vector that requires a gradient; checked to be a scalar with a graph."""
        with noting_samples(bool(idx)):
            value = self._call(x, *idx)
        return _checked_value(value)

    def _call(self, x: Tensor, *idx: Any) -> Any:
        if self._holder.module is None:
            return self._fun(self.unflatten(x), *idx)
        return self.holding(self.split(x), self._fun, self._holder.module, *idx)

    @property
    def module(self) -> nn.Module | None:
        """x0, if that is a module."""
        return self._holder.module

    def unflatten(self, x: Tensor) -> Any:
        """A vector in the form of x0."""
        return self._holder.rebuilt(dict(zip(self._names, self.split(x), strict=True)))

    def slices(self) -> dict[str, slice]:
        """The slice of the flat vector that each tensor takes, by its path in x0."""
        return {self._holder.paths[name]: part for name, part in super().slices().items()}


class _Holder(nn.Module):
    """Holds x0: a module, or tensors as parameters.

    These share the memory of the tensors: what is copied into them arrives there.
    """

    def __init__(self, x0: Any) -> None:
        super().__init__()
        self.module = x0 if isinstance(x0, nn.Module) else None
        if isinstance(x0, nn.Module):
            names = [name for name, _ in x0.named_parameters()]
            self.paths = {f"module.{name}": name for name in names}
            return
        form = _as_form(x0)
        self._form = (form,)  # a module would take a parameter itself for one of its own
        leaves = _leaves(form)
        if len({id(leaf) for _, leaf in leaves}) < len(leaves):
            raise ValueError("x0 holds the same tensor twice: give it once, and use it twice")
        self.tensors = nn.ParameterList([_parameter(leaf) for _, leaf in leaves])
        self.paths = {f"tensors.{i}": path for i, (path, _) in enumerate(leaves)}

    def rebuilt(self, tensors: Mapping[str, Tensor]) -> Any:
        """The form of x0 with these tensors."""
        if self.module is not None:
            return {self.paths[name]: tensor for name, tensor in tensors.items()}
        own = {f"tensors.{i}": tensor.detach() for i, tensor in enumerate(self.tensors)}
        return rebuilt(self._form[0], iter((own | dict(tensors)).values()))


def _as_form(x0: Any) -> Any:
    """`x0`, where an iterator such as ``net.parameters()`` has become a list."""
    if isinstance(x0, (Tensor, Mapping, list, tuple, str)) or not isinstance(x0, Iterable):
        return x0
    return x0 if hasattr(x0, "dtype") else list(x0)


def _leaves(form: Any) -> list[tuple[str, Tensor]]:
    """The tensors of a nested form, each with its path, such as ``layer.0``."""
    found = [(dotted(path), leaf) for path, leaf in paths(form)]
    for path, leaf in found:
        if not isinstance(leaf, Tensor):
            where = f" at {path!r}" if path else ""
            raise TypeError(
                "x0: expected a tensor, a module, or a nested dict, list or tuple of tensors, not "
                f"{type(leaf).__name__}{where}"
            )
    return found


def _in_double(tensor: Tensor) -> nn.Parameter:
    """A copy; a frozen one stays frozen."""
    return nn.Parameter(tensor.detach().double(), requires_grad=tensor.requires_grad)


def _parameter(leaf: Tensor) -> nn.Parameter:
    """A parameter with the memory of a tensor; a frozen one stays frozen."""
    if not leaf.is_floating_point():
        raise TypeError(f"x0 has dtype {leaf.dtype}; expected float32 or float64")
    frozen = isinstance(leaf, nn.Parameter) and not leaf.requires_grad
    return nn.Parameter(leaf.detach(), requires_grad=not frozen)


def _checked_value(value: Any) -> Tensor:
    """What the function returned, if that is a real scalar with a graph."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"the function must return a scalar tensor, not {type(value).__name__}: without "
            ".item() or float(), which lose the graph that derivatives come from"
        )
    if value.numel() != 1:
        raise ValueError(
            f"the function must return a scalar, not a tensor of shape {tuple(value.shape)}"
        )
    if not value.is_floating_point():
        raise TypeError(f"the function must return a real floating number, not {value.dtype}")
    if not value.requires_grad:
        raise ValueError(NO_GRAPH)
    return value.reshape(())

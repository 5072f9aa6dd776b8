"""How a model is called: positional arguments, keyword arguments, or one argument."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map


def arguments(model: nn.Module, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and the keyword arguments that `inputs` are.

    A tuple is positional arguments. A dict, or a namedtuple, is keyword arguments where the forward
    pass takes such; else it is the one argument, as it is.
    """
    named = _named(inputs)
    if named is None:
        return (inputs if isinstance(inputs, tuple) else (inputs,)), {}
    if all(isinstance(name, str) for name in named) and takes(model, (), named):
        return (), named
    return (inputs,), {}


def _named(inputs: Any) -> dict[str, Any] | None:
    """The inputs by name; None where they have none."""
    if isinstance(inputs, Mapping):
        return dict(inputs)
    return inputs._asdict() if is_namedtuple(inputs) else None


def takes(model: nn.Module, positional: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    """Whether the forward pass of a model takes these arguments."""
    try:
        inspect.signature(model.forward).bind(*positional, **named)
    except TypeError:
        return False
    except ValueError:  # no signature: a function of C
        return True
    return True


def is_namedtuple(tree: Any) -> bool:
    """Whether a tuple has names for its entries."""
    return isinstance(tree, tuple) and hasattr(tree, "_fields")


def detached(tree: Any) -> Any:
    """The tensors without their graphs, and without their own flags requires_grad."""
    return tree_map(lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf, tree)


def row_count(inputs: Any) -> int:
    """How many samples there are in the inputs of a chunk."""
    return len(tree_leaves(inputs)[0])

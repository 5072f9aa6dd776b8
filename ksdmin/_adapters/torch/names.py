"""The names of a module's parameters."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from ksdmin._adapters.names import Names
from ksdmin._adapters.torch.flat_model import FlatModel

COMPILED = "_orig_mod."  # what torch.compile puts before the names in a module


def names_of(model: FlatModel) -> Names:
    """Those of ``named_parameters()``; tied parameters go by each of their names."""
    shapes = zip(model.slices(), model.shapes, strict=True)
    module = getattr(model, "module", model.model)
    aliases, constant = _others(module, {name: name for name in model.slices()}.get)
    return Names(shapes, aliases, constant)


def _others(
    module: nn.Module | None, own: Callable[[str], str | None]
) -> tuple[dict[str, str], list[str]]:
    """Other names of the variables, and the names of what is constant."""
    if module is None:
        return {}, []
    first = {id(parameter): name for name, parameter in module.named_parameters()}
    aliases: dict[str, str] = {}
    constant = []
    for name, parameter in module.named_parameters(remove_duplicate=False):
        variable = own(first[id(parameter)])
        if variable is None:
            constant.append(name)
        else:
            aliases |= {name: variable, name.replace(COMPILED, ""): variable}
    return {other: name for other, name in aliases.items() if other != name}, constant

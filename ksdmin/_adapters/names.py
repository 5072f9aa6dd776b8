"""Parameters by name: where they are in the flat vector, and their bounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ksdmin._options import nearest
from ksdmin._problem.arrays import Small, to_host

PAIR = "expected a pair (low, high), None for no bound"


class Part(NamedTuple):
    """Where a parameter is in the flat vector, and its shape."""

    at: slice
    shape: tuple[int, ...]


class Names:
    """The parameters of a problem by their names, such as ``encoder.0.weight``.

    A name also stands for all parameters beneath it: ``encoder`` or ``encoder.``.
    """

    def __init__(
        self,
        # The parameters in the order of the flat vector.
        shapes: Iterable[tuple[str, tuple[int, ...]]],
        # Other names, and the parameters that they stand for.
        aliases: Mapping[str, str] | None = None,
        constant: Iterable[str] = (),  # names of parameters that are not varied
    ) -> None:
        self._parts: dict[str, Part] = {}
        end = 0
        for name, shape in shapes:
            start, end = end, end + math.prod(shape)
            self._parts[name] = Part(slice(start, end), shape)
        self._aliases, self._constant = dict(aliases or {}), list(constant)
        self.n = end

    def index(self, name: str) -> slice | npt.NDArray[np.int64]:
        """The indices in the flat vector of a parameter, or of all parameters beneath a name."""
        parts = [part.at for part in self._found(name, "index").values()]
        if all(one.stop == other.start for one, other in pairwise(parts)):
            return slice(parts[0].start, parts[-1].stop)
        return np.concatenate([np.arange(part.start, part.stop) for part in parts])

    def limits(self, bounds: Mapping[str, Any]) -> tuple[Small, Small]:
        """Lower and upper bounds of the flat vector; of two names the longer path wins."""
        low, high = np.full(self.n, -np.inf), np.full(self.n, np.inf)
        found = {name: self._found(name, "bounds") for name in bounds}
        if len({_path(name) for name in found}) < len(found):
            raise ValueError(f"bounds: a name is given twice, in {', '.join(map(repr, found))}")
        for name in sorted(found, key=lambda name: len(_path(name))):
            pair, parts = bounds[name], found[name]
            for part in parts.values():
                low[part.at], high[part.at] = _limits(name, pair, part.shape, alone=len(parts) == 1)
        return low, high

    def _found(self, name: Any, argument: str) -> dict[str, Part]:
        """The parameters that a name stands for."""
        if not isinstance(name, str):
            raise TypeError(f"{argument}: expected the name of a parameter, not {name!r}")
        known = dict.fromkeys([*self._parts, *self._aliases])
        wanted = _path(name)
        meant = [one for one in known if wanted and _path(one)[: len(wanted)] == wanted]
        parts = {own: self._parts[own] for own in (self._aliases.get(one, one) for one in meant)}
        if not parts:
            raise ValueError(f"{argument}: {self._unknown(name)}")
        return dict(sorted(parts.items(), key=lambda item: item[1].at.start))

    def _unknown(self, name: str) -> str:
        wanted = _path(name)
        if wanted and any(_path(one)[: len(wanted)] == wanted for one in self._constant):
            return (
                f"{name!r} is constant: it requires no gradient, or params= leaves it out, so that "
                "it is not a variable of the problem"
            )
        if not any(self._parts):
            return "the variables of this problem have no names: it is a function of one vector"
        words = [".".join(_path(one)[:k]) for one in self._parts for k in range(1, 9)]
        few = list(self._parts)[:8]
        more = f" and {len(self._parts) - 8} more" if len(self._parts) > 8 else ""
        hint = nearest(name, dict.fromkeys(words))
        return f"there is no parameter {name!r}{hint}; there are {', '.join(few)}{more}"


def _path(name: str) -> tuple[str, ...]:
    """The parts of a path; a dot at its end has no effect."""
    return tuple(name.removesuffix(".").split(".")) if name else ()


def _limits(name: str, pair: Any, shape: tuple[int, ...], alone: bool) -> tuple[Small, Small]:
    """Low and high of every entry of a parameter."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ValueError(f"bounds[{name!r}]: {PAIR}, not {type(pair).__name__}")
    low, high = (
        _entries(name, given, infinite, shape, alone)
        for given, infinite in zip(pair, (-np.inf, np.inf), strict=True)
    )
    if (low > high).any():
        i = int((low > high).argmax())
        raise ValueError(f"bounds[{name!r}]: the lower bound {low[i]} is above the upper {high[i]}")
    return low, high


def _entries(name: str, given: Any, infinite: float, shape: tuple[int, ...], alone: bool) -> Small:
    try:
        limit = (
            to_host(given)
            if hasattr(given, "shape")
            else np.asarray(infinite if given is None else given, dtype=np.float64)
        )
    except (TypeError, ValueError):
        raise ValueError(f"bounds[{name!r}]: {PAIR}; {given!r} is not a number") from None
    if limit.ndim and not alone:
        raise ValueError(
            f"bounds[{name!r}]: several parameters are beneath it, so that a limit must be one "
            "number; arrays go with the name of one parameter"
        )
    try:
        return np.broadcast_to(limit, shape).reshape(-1)
    except ValueError:
        raise ValueError(
            f"bounds[{name!r}]: a limit of shape {limit.shape} does not fit the parameter's {shape}"
        ) from None

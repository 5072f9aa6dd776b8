"""Trees: nested dicts (and other mappings), lists, tuples and namedtuples; anything else is a leaf.

Model outputs may be dataclasses, too; for them functions below take another `entries`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Entries = Callable[[Any], "list[tuple[Any, Any]] | None"]


def is_namedtuple(tree: Any) -> bool:
    """Whether a tuple has names for its entries."""
    return isinstance(tree, tuple) and hasattr(tree, "_fields")


def entries(tree: Any) -> list[tuple[Any, Any]] | None:
    """The entries of a container, with keys, names or positions; None for a leaf."""
    if isinstance(tree, Mapping):
        return list(tree.items())
    if isinstance(tree, (tuple, list)):
        return list(zip(getattr(tree, "_fields", range(len(tree))), tree, strict=True))
    return None


def entries_or_fields(tree: Any) -> list[tuple[Any, Any]] | None:
    """The same; for a dataclass its init fields."""
    if dataclasses.is_dataclass(tree) and not isinstance(tree, (type, Mapping)):
        return [(f.name, getattr(tree, f.name)) for f in dataclasses.fields(tree) if f.init]
    return entries(tree)


def paths(
    tree: Any, entries: Entries = entries, at: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The leaves, each with the keys on the way to it."""
    held = entries(tree)
    if held is None:
        yield at, tree
    for key, part in held or ():
        yield from paths(part, entries, (*at, key))


def dotted(path: tuple[Any, ...]) -> str:
    """A path as one word, such as ``layers.0.w``."""
    return ".".join(map(str, path))


def tree_leaves(tree: Any, entries: Entries = entries) -> list[Any]:
    """The leaves."""
    held = entries(tree)
    if held is None:
        return [tree]
    return [leaf for _, part in held for leaf in tree_leaves(part, entries)]


def tree_map(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """A tree of `function` of every leaf and the corresponding leaves of other trees."""
    if isinstance(tree, Mapping):
        made = {k: tree_map(function, part, *(o[k] for o in others)) for k, part in tree.items()}
        return like(tree, made)
    if isinstance(tree, (tuple, list)):
        rows = zip(tree, *others, strict=True)
        return like(tree, {i: tree_map(function, *row) for i, row in enumerate(rows)})
    return function(tree, *others)


def rebuilt(tree: Any, leaves: Iterator[Any], entries: Entries = entries) -> Any:
    """A tree like `tree` with other leaves, in their order."""
    held = entries(tree)
    if held is None:
        return next(leaves)
    return like(tree, {key: rebuilt(part, leaves, entries) for key, part in held})


def like(tree: Any, made: dict[Any, Any]) -> Any:
    """A container like `tree`, of other entries."""
    if isinstance(tree, Mapping):  # the first argument of a defaultdict differs
        return made if isinstance(tree, dict) else type(tree)(made)  # type: ignore[call-arg]
    if is_namedtuple(tree):
        return type(tree)(*made.values())
    if isinstance(tree, (tuple, list)):
        return type(tree)(made.values())
    return dataclasses.replace(tree, **made)

"""Compiled functions of jax, each compiled once: also where several problems have the same one.

``jax.jit`` compiles again for every function object. Two problems made of one model, such as two
runs with other parameters to start from, would compile everything twice. Tracing is cheap: so each
function is traced and lowered, and what was compiled from the same text is used again.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.tree_util import tree_flatten, tree_unflatten

from ksdmin._adapters.functional.jax_sharding import is_spread
from ksdmin._problem.arrays import TRACED, Array, is_traced

# Programs that are kept for problems to come; those in use stay with their problems anyway.
KEPT_PROGRAMS = 128
# Options of XLA for programs that run for less time than they take to compile, on a CPU: half the
# seconds of compiling (jax 0.10, aarch64), and those of a call between a third less and a seventh
# more. With optimization level 0 a call takes twice as long.
QUICK = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 1}

_kept: OrderedDict[str, Any] = OrderedDict()

Flat = Callable[[list[Any]], list[Array]]
"""The leaves of the arguments -> the leaves of the result."""


class Program:
    """A function of trees of arrays, compiled for each of their structures and shapes.

    Parameters
    ----------
    function : callable
        What is traced: a pure function.
    options : mapping, optional
        Of XLA. Where its version does not know one of them, it has to do without all.
    """

    def __init__(
        self, function: Callable[..., Any], options: Mapping[str, Any] | None = None
    ) -> None:
        self.function, self._options = function, dict(options or {})
        self._known: dict[Any, tuple[Flat, Any]] = {}

    def __call__(self, *args: Any) -> Any:
        if jax.config.jax_disable_jit:  # type: ignore[attr-defined]
            return self.function(*args)  # for a look inside with a debugger
        leaves, structure = tree_flatten(args)
        key = structure, tuple(map(_kind, leaves))
        if key not in self._known:
            self._known[key] = self._compiled(leaves, structure)
        run, made = self._known[key]
        return tree_unflatten(made, run(leaves))

    def lower(self, *args: Any) -> Any:
        """What is compiled for arguments like these, to be looked at."""
        leaves, structure = tree_flatten(args)
        return self._lowered(leaves, structure)[0]

    def _compiled(self, leaves: list[Any], structure: Any) -> tuple[Flat, Any]:
        lowered, constants, made = self._lowered(leaves, structure)
        compiled = _compiled_once(lowered, leaves, self._options)
        return lambda leaves: compiled(constants, leaves), made

    def _lowered(self, leaves: list[Any], structure: Any) -> tuple[Any, list[Array], Any]:
        """The function, the arrays that it closes over as its first argument; and its result."""

        def flat(*leaves: Any) -> Any:
            return self.function(*tree_unflatten(structure, leaves))

        traced, shapes = jax.make_jaxpr(flat, return_shape=True)(*leaves)
        if any(map(is_traced, traced.consts)):
            raise TypeError(TRACED)
        constants = [jax.numpy.asarray(part) for part in traced.consts]

        def with_constants(constants: list[Array], leaves: list[Any]) -> list[Array]:
            return jax.core.eval_jaxpr(traced.jaxpr, constants, *leaves)

        _, made = tree_flatten(shapes)
        # Arguments that are not used stay, lest two texts be the same that use others of them
        compiling = jax.jit(with_constants, keep_unused=True)
        return compiling.lower(constants, leaves), constants, made


def _kind(leaf: Any) -> Any:
    if is_spread(leaf):
        return leaf.shape, leaf.dtype, leaf.sharding
    return (leaf.shape, leaf.dtype) if hasattr(leaf, "dtype") else type(leaf)


def _compiled_once(lowered: Any, leaves: list[Any], options: dict[str, Any]) -> Any:
    """The compiled program: an earlier one, where that has the same text."""
    devices = {str(leaf.sharding) for leaf in leaves if isinstance(leaf, jax.Array)}
    settings = sorted(jax.config.values.items(), key=str)
    text = (lowered.as_text(), sorted(devices), settings, sorted(options.items()))
    digest = hashlib.sha256(repr(text).encode()).hexdigest()
    if digest not in _kept:
        _kept[digest] = _compiled(lowered, options)
    _kept.move_to_end(digest)
    if len(_kept) > KEPT_PROGRAMS:
        _kept.popitem(last=False)
    return _kept[digest]


def _compiled(lowered: Any, options: dict[str, Any]) -> Any:
    if not options:
        return lowered.compile()
    try:
        return lowered.compile(compiler_options=options)
    except RuntimeError as error:
        if "compile option" not in str(error):
            raise
        return lowered.compile()

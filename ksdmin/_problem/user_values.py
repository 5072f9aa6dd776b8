"""What a user passes or returns, converted to the vector or number that it should be."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from array_api_compat import device, is_array_api_obj, is_jax_array, is_numpy_array, is_torch_array

from ksdmin._problem.arrays import TRACED, Array, detached, is_traced, namespace_of


def as_vector(x0: Any) -> Array:
    """`x0` as a real floating vector in its own namespace, copied only if necessary."""
    if is_traced(x0):
        raise TypeError(TRACED)
    if not is_array_api_obj(x0) or is_numpy_array(x0):
        x0 = np.atleast_1d(_converted(x0))
        if x0.dtype.kind in "iub":
            x0 = x0.astype(np.float64)
        x0 = x0.astype(x0.dtype.newbyteorder("="), copy=False)
        single, double = np.dtype(np.float32), np.dtype(np.float64)
    else:
        xp = namespace_of(x0)
        x0 = detached(x0)
        x0 = xp.reshape(x0, (1,)) if x0.ndim == 0 else x0
        if xp.isdtype(x0.dtype, ("bool", "integral")):
            # jax has no float64 unless it is enabled
            x0 = xp.astype(x0, xp.asarray(0.0).dtype if is_jax_array(x0) else xp.float64)
        single, double = xp.float32, xp.float64
    if x0.ndim != 1:
        raise ValueError(
            f"'x0' must only have one dimension, not shape {tuple(x0.shape)}: pass a vector, and "
            "reshape it in fun; ksdmin.from_torch and from_jax (fun, x0=...) keep the shape"
        )
    if x0.shape[0] == 0:
        raise ValueError("'x0' is empty: there is nothing to minimise over")
    if x0.dtype not in (single, double):
        raise TypeError(f"x0 has dtype {x0.dtype}; expected float32 or float64: convert it first")
    return x0


def _converted(x0: Any) -> np.ndarray[Any, Any]:
    """As a numpy array; raises if the parameters are not a single vector."""
    leaves = [] if isinstance(x0, np.ndarray) else list(_leaves(x0))
    foreign = any(is_torch_array(leaf) or is_jax_array(leaf) for leaf in leaves)
    try:
        array = np.asarray(x0)
    except (TypeError, ValueError, RuntimeError):
        array = np.array(None)
    nested = not isinstance(x0, (list, tuple)) or any(
        isinstance(part, (Mapping, list, tuple)) or len(getattr(part, "shape", ())) for part in x0
    )
    if not leaves or not nested or (array.dtype != object and not foreign):
        return array
    entry = "from_jax" if any(map(is_jax_array, leaves)) else "from_jax or from_autograd"
    if hasattr(x0, "named_parameters") or any(map(is_torch_array, leaves)):
        entry = "from_torch"
    call = f"ksdmin.minimize(ksdmin.{entry.partition(' ')[0]}(fun, x0=x0))"
    raise TypeError(
        f"x0 is a {type(x0).__name__}, not a vector: {entry} takes parameters of any form, as in "
        f"{call}; problem.unflatten(res.x) has that form again"
    )


def _leaves(tree: Any) -> Iterator[Any]:
    if not isinstance(tree, (Mapping, list, tuple)):
        yield tree
        return
    for part in tree.values() if isinstance(tree, Mapping) else tree:
        yield from _leaves(part)


def refuse_coarse(value: Any, eps: float) -> None:
    """Raise if a value has fewer digits than x0, and gradients are differences of values."""
    if type(value) is float or type(value) is np.float64:
        return
    if is_traced(value) or not is_array_api_obj(value):
        return
    xp = namespace_of(value)
    if xp.isdtype(value.dtype, "real floating") and float(xp.finfo(value.dtype).eps) > eps:
        of_jax = is_jax_array(value)
        raise TypeError(
            f"fun returns {value.dtype}, which has fewer digits than x0: its differences would be "
            "rounding errors. "
            + (
                "Pass a jax array as x0: then jax differentiates fun; or compute in float64, after "
                'jax.config.update("jax_enable_x64", True)'
                if of_jax
                else "Compute fun in float64, pass jac, or pass x0 in float32, where the steps of "
                "differences are longer"
            )
        )


def as_scalar(value: Any, origin: str) -> float:
    """The value that user code (`origin`) returned, as a Python float."""
    if type(value) is float or type(value) is np.float64:
        return float(value)
    if is_traced(value):
        raise TypeError(TRACED)
    shape = tuple(getattr(value, "shape", ()))
    if math.prod(shape) == 1:  # errors in here (of CUDA, say) are not about shape
        value = value.item() if hasattr(value, "item") else value
        if not isinstance(value, (str, bytes)):
            with suppress(TypeError):  # None, a complex number
                return float(value)
    what = f"an array of shape {shape}" if shape else f"a {type(value).__name__}"
    if origin == "fun" and isinstance(value, (tuple, list)) and len(value) == 2:
        what += ": (value, gradient)? then pass jac=True"
    raise ValueError(
        f"The user-provided objective function must return a scalar value: {origin} returned {what}"
    )


BETWEEN = ("ksdmin", "scipy", "torch")  # torch wraps optimizers' steps, SciPy calls its plug-ins


def frames_to_the_user() -> int:
    """The `stacklevel` of the user's line, as seen from the caller of this function."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in BETWEEN:
            break
        level, frame = level + 1, frame.f_back
    return level


def as_generator(rng: Any) -> np.random.Generator:
    """``numpy.random.default_rng(rng)`` of an argument `rng`."""
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"rng={rng!r}: expected a non-negative integer, a numpy.random.Generator or None"
        ) from None


def counted(number: int, noun: str) -> str:
    """A number of things: "1 sample", "60,000 samples"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def unknowns(x0: Any) -> str:
    """The variables in words: "1,234 unknowns (float32, cpu)"."""
    dtype = str(x0.dtype).rsplit(".", maxsplit=1)[-1]  # torch's are torch.float32
    return f"{counted(int(x0.shape[0]), 'unknown')} ({dtype}, {device(x0)})"


def samples(subsets: Any) -> list[str]:
    """The number of samples in words; empty for a plain function."""
    if subsets is None:
        return []
    return ["your own sets" if subsets.n is None else counted(subsets.n, "sample")]


def given(name: str, value: Any) -> list[str]:
    """An argument in words: the name of a function, or the word itself; empty if not given."""
    if value is None:
        return []
    function = getattr(value, "__name__", type(value).__name__)
    return [f"{name}={function}" if callable(value) else f"{name}={value!r}"]


def add_note(error: BaseException, note: str, *about: str) -> None:
    """Add a note to an error; with texts `about` only if one of them is in its message."""
    with suppress(Exception):  # an exception may refuse a note
        if not about or any(text in str(error) for text in about):
            error.add_note(note)

"""The arguments of ``from_torch``, ``from_jax`` and ``from_autograd``, and their checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import is_torch_array
from scipy.sparse import issparse

from ksdmin._options import nearest
from ksdmin._problem.arrays import to_host
from ksdmin._problem.user_values import add_note


@dataclass(frozen=True)
class Arguments:
    """The arguments of a public adapter; those that it does not take have their defaults."""

    model: Any
    loss: Any = None
    data: Any = None
    residuals: Any = None
    params: Any = None
    x0: Any = None
    subsets: Any = None
    output: Any = None
    curvature: Any = None
    l2: Any = 0.0
    precond: Any = None
    chunk_size: int | None = None
    memory_budget: float | None = None
    precision: str = "highest"
    graphs: bool | None = None
    rng: Any = 0
    sample_weight: Any = None
    process_group: Any = None

    def __post_init__(self) -> None:
        chunk, budget = self.chunk_size, self.memory_budget
        if chunk is not None and not (isinstance(chunk, Integral) and chunk >= 1):
            raise ValueError(f"chunk_size={chunk!r}: expected a whole number of samples from 1 up")
        if budget is not None and not (isinstance(budget, Real) and budget >= 0):
            raise ValueError(f"memory_budget={budget!r}: expected a number of bytes, such as 1e9")

    def refuse(self, instead: str, *names: str, mend: str = "leave it out") -> None:
        """Raise if arguments are given that belong to `instead`."""
        for name in names:
            if getattr(self, name) is not None:
                raise TypeError(f"{name}= goes with {instead}: {mend}")

    def require(self, by: str, *names: str) -> None:
        """Raise if arguments are missing that are needed `by` something."""
        for name in names:
            if getattr(self, name) is None:
                raise TypeError(f"{name}= is missing: {by} needs {' and '.join(names)}")


CALLED_AS = (
    "with subsets=, the function is called as fun(theta, idx), the mean over the samples idx: "
    "slice(None) or a sorted int64 array of rows below the number of samples that subsets= says "
    "(are there so many?), or what your own subsets hold"
)


@contextmanager
def noting(note: str, *kinds: type[Exception], about: tuple[str, ...] = ()) -> Iterator[None]:
    """Add a note to errors of these kinds, if one of the texts `about` is in their message."""
    try:
        yield
    except kinds as error:
        add_note(error, note, *about)
        raise


def noting_samples(sampled: bool) -> AbstractContextManager[None]:
    """Add to errors of a plain function how it was called: it may not take `idx`."""
    return noting(CALLED_AS, *((TypeError, IndexError, KeyError) if sampled else ()))


def noting_foreign_functions() -> AbstractContextManager[None]:
    """Add to errors of a traced function what cannot be traced."""
    return noting(
        "Within the function use the library's own numpy and arrays. Where it needs "
        "scipy.sparse or other code that cannot be differentiated, give the derivatives: "
        "ksdmin.minimize(fun, x0, jac=jac)",
        TypeError,  # such as jax's TracerArrayConversionError
    )


def from_frame(data: Any) -> Any:
    """A DataFrame, or a column of one, as an array; anything else unchanged."""
    if not hasattr(data, "to_numpy"):
        return data
    array = data.to_numpy()
    if array.dtype.kind in "biufc":
        return np.ascontiguousarray(array)  # pandas keeps columns together, a sample is a row
    arrays = {name: data[name].to_numpy() for name in getattr(data, "columns", ())}
    wrong = [repr(name) for name, column in arrays.items() if column.dtype.kind not in "biufc"]
    if wrong or not arrays:
        where = f", in the column {', '.join(wrong)}" if wrong else ""
        raise TypeError(
            f"data: the {type(data).__name__} has entries that are not numbers{where}: encode "
            "them, fill gaps, or leave the column out"
        )
    return np.column_stack(list(arrays.values()))


def refuse_sparse(data: Any) -> None:
    """Raise for sparse data of scipy, torch or jax."""
    kind = f"{type(data).__module__}.{type(data).__name__}"
    kind = str(data.layout) if is_torch_array(data) else kind
    if issparse(data) or kind.startswith(("torch.sparse", "jax.experimental.sparse")):
        raise TypeError(
            f"data: a model takes dense arrays, not a {kind}. Make it dense, if that fits into "
            "memory; otherwise write the loss as plain callables, which take sparse data: "
            "ksdmin.minimize(fun, x0, jac=jac, subsets=N), with X[idx] in fun(x, idx) and "
            "jac(x, idx); or, in jax, from_jax(fun, x0=x0) with fun(x) that closes over it"
        )


def sample_count(parts: Iterable[Any]) -> int:
    """How many samples all arrays have."""
    lengths = {int(part.shape[0]) for part in parts}
    if len(lengths) != 1:
        raise ValueError(
            f"data: the arrays have one row per sample, but differ in length: {sorted(lengths)}"
        )
    n = lengths.pop()
    if n == 0:
        raise ValueError("data: there are no samples")
    return n


def check_deterministic(
    name: str, first: float, second: float, tolerance: float, otherwise: str = ""
) -> None:
    """Raise if a model gave two values for the same parameters and samples.

    `otherwise` is another remedy than removing the randomness.
    """
    if abs(first - second) > tolerance * abs(first):
        raise ValueError(
            f"{name} is not deterministic, or its loss, residuals or data are not: the same "
            f"parameters and samples gave the loss {first!r}, then {second!r}. Remove the "
            f"randomness (eval mode; noise that is drawn once, as data){otherwise}"
        )


def check_curvature_of_function(curvature: Any) -> None:
    """Raise for a curvature that a plain function does not have."""
    if curvature not in (None, "hessian") and not callable(curvature):
        raise ValueError(
            f"curvature={curvature!r} needs a model with outputs and a loss, which a plain "
            "function does not have: leave it out, or give loss and data"
        )


def as_precond(precond: Any, *names: str) -> Any:
    """The argument `precond`: one of these `names`, None, an array or a callable.

    "fisher" is the former name of "diagonal".
    """
    if isinstance(precond, str) and precond == "fisher":
        return "diagonal"
    known = precond is None or callable(precond) or hasattr(precond, "shape")
    if known or (isinstance(precond, str) and precond in names):
        return precond
    meant = nearest(precond, names) if isinstance(precond, str) else ""
    raise ValueError(
        f"precond={precond!r}{meant}: expected {', '.join(map(repr, names))}, None, an array or a "
        "callable (x, idx)"
    )


# The weights of samples


def as_weights(sample_weight: Any, n: int) -> npt.NDArray[np.float64]:
    """``sample_weight=``, checked: `n` numbers that are not negative, and not all zero."""
    given = sample_weight if hasattr(sample_weight, "shape") else np.asarray(sample_weight)
    weights = np.asarray(to_host(given), dtype=np.float64)
    if weights.shape != (n,):
        raise ValueError(
            f"sample_weight has shape {weights.shape}: expected one number for each of the {n} "
            f"samples, shape ({n},)"
        )
    if not np.isfinite(weights).all() or (weights < 0).any():
        bad = int(np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))[0])
        raise ValueError(
            f"sample_weight[{bad}] is {weights[bad]}: expected finite numbers that are not negative"
        )
    if not weights.any():
        raise ValueError("sample_weight: every weight is zero, so that there is nothing to fit")
    return weights


# Autodiff libraries are imported when an adapter is called, not before


def adapter(name: str) -> Any:
    """The module that adapts a library; imports both."""
    module = "torch.build" if name == "torch" else f"functional.{name}"
    try:
        return import_module(f"ksdmin._adapters.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != name:
            raise
        raise ImportError(f"ksdmin.from_{name} needs {name}: pip install {name}") from error


# The argument ``residuals=``: blocks of residuals, checked


BLOCK_CALLED_AS = (
    "The function of a block is called as r(net, batch): net is the module (in from_jax and "
    "from_autograd the parameters), and batch has rows of the data, as a tuple if the data are "
    "one. Where the data are None, the function is called as r(net)."
)

JOINED = "Put several into one as columns, or make each a block of its own"


@dataclass(frozen=True)
class Block:
    """One entry of ``residuals=``: a function, its samples (None: it takes none), its weight."""

    residuals: Callable[..., Any]
    data: Any
    weight: float


def as_blocks(residuals: Any) -> list[Block]:
    """The argument ``residuals=``: (r, data) or (r, data, weight) for each block."""
    expected, wrong = "residuals: expected a list of (r, data) or (r, data, weight), not", None
    if not isinstance(residuals, Iterable) or isinstance(residuals, (str, bytes, Mapping)):
        wrong = type(residuals).__name__
    elif isinstance(residuals, tuple) and residuals and callable(residuals[0]):
        wrong = "one of these: residuals=[(r, data)]"
    if wrong:
        raise TypeError(f"{expected} {wrong}")
    blocks = [_as_block(number, entry) for number, entry in enumerate(residuals)]
    if not blocks:
        raise ValueError("residuals: the list is empty; expected (r, data) or (r, data, weight)")
    return blocks


def _as_block(number: int, entry: Any) -> Block:
    if not isinstance(entry, (tuple, list)) or len(entry) not in (2, 3):
        of = f" of {len(entry)}" if isinstance(entry, (tuple, list)) else ""
        raise TypeError(
            f"residuals: block {number} is a {type(entry).__name__}{of}; expected (r, data) or "
            "(r, data, weight), data=None where r takes none"
        )
    r, data, weight = (*entry, 1.0) if len(entry) == 2 else entry
    if not callable(r):
        raise TypeError(
            f"residuals: block {number} begins with a {type(r).__name__}; expected a function that "
            "returns the residuals"
        )
    if not isinstance(weight, Real) or isinstance(weight, bool):
        if getattr(weight, "shape", ()):
            raise TypeError(
                f"residuals: block {number} has an array of shape {tuple(weight.shape)} where its "
                "weight belongs, one number. Several arrays of data are a tuple: (r, (x, y))"
            )
        raise TypeError(f"residuals: the weight of block {number} is {weight!r}, not a number")
    if not 0 < float(weight) < math.inf:
        raise ValueError(
            f"residuals: the weight of block {number} is {weight!r}; expected a positive number"
        )
    return Block(r, data, float(weight))


def check_rows(shape: tuple[int, ...], rows: int | None) -> None:
    """Raise if residuals are not one row per sample (`rows` None: one vector of them)."""
    if not shape:
        wanted = "a vector (for a single one reshape(1))" if rows is None else "one row per sample"
        raise ValueError(
            f"r returned one number: it must return the residuals themselves, {wanted}; they are "
            "squared and averaged here"
        )
    if rows is not None and shape[0] != rows:
        raise ValueError(
            f"r returned shape {shape} for {rows} samples: it must return one row per sample. A "
            "condition on all points at once is a block without data: (r, None), with r(model)"
        )
    if 0 in shape:
        raise ValueError(f"r returned no residuals: shape {shape}")


# What to do about complex numbers
REAL_PARTS = (
    "Give their real and imaginary parts as entries of their own (torch.view_as_real, or "
    "stack([z.real, z.imag], axis=-1))"
)
REAL_LOSS = "Take abs(z) ** 2, not z ** 2"


def check_real(values: Any, origin: str, instead: str) -> None:
    """Raise for complex numbers, of which a conversion would keep the real parts alone."""
    dtype = str(getattr(values, "dtype", ""))
    if "complex" in dtype:
        raise TypeError(f"{origin} returned {dtype}: expected real numbers. {instead}")


def check_block_curvature(curvature: Any) -> None:
    """Raise for a user's own curvature, whose terms are not known."""
    if curvature is not None and not isinstance(curvature, str):
        raise TypeError(
            "curvature: with residuals= expected a name, such as 'gauss-newton' or 'hessian', not "
            f"a {type(curvature).__name__}"
        )


@contextmanager
def noting_block(number: int) -> Iterator[None]:
    """Add to errors which block of the residuals they are about, and how its function is called."""
    wrong_call = "positional argument", "not callable"
    with (
        noting(f"in block {number} of residuals=", Exception),
        noting(BLOCK_CALLED_AS, TypeError, about=wrong_call),
    ):
        yield

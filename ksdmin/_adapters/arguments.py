"""Checks of arguments that the functions of all adapters share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from scipy.sparse import issparse

from ksdmin._options import nearest

CALLED_AS = (
    "with subsets=, the function is called as fun(theta, idx), the mean over the samples idx: "
    "slice(None) or a sorted int64 array of rows below the number of samples that subsets= says "
    "(are there so many?), or what your own subsets hold"
)


@contextmanager
def noting_samples(sampled: bool) -> Iterator[None]:
    """Add to errors of a plain function how it was called: it may not know of `idx`."""
    try:
        yield
    except (TypeError, IndexError, KeyError) as error:
        if sampled:
            with suppress(Exception):  # an exception may refuse it
                error.add_note(CALLED_AS)
        raise


@contextmanager
def noting_foreign_functions() -> Iterator[None]:
    """Add to errors of a function that is traced what may not be traced."""
    try:
        yield
    except TypeError as error:  # such as jax's TracerArrayConversionError
        with suppress(Exception):
            error.add_note(
                "Within the function use the library's own numpy and arrays. Where it needs "
                "scipy.sparse or other code that cannot be differentiated, give the derivatives: "
                "ksdmin.minimize(fun, x0, jac=jac)"
            )
        raise


def from_frame(data: Any) -> Any:
    """A DataFrame, or a column of one, as an array; anything else as it is."""
    if not hasattr(data, "to_numpy"):
        return data
    array = data.to_numpy()
    if array.dtype.kind in "biufc":
        return array
    if hasattr(data, "columns"):
        columns = {name: data[name] for name in data.columns}
    else:
        columns = {getattr(data, "name", None): data}
    arrays = {name: column.to_numpy() for name, column in columns.items()}
    wrong = [repr(name) for name, column in arrays.items() if column.dtype.kind not in "biufc"]
    if wrong:
        raise TypeError(
            f"data: the {type(data).__name__} has entries that are no numbers, in the column "
            f"{', '.join(wrong)}: encode them, fill gaps, or leave the column out"
        )
    return np.column_stack(list(arrays.values()))


def refuse_sparse(data: Any) -> None:
    """Refuse sparse data: of scipy, or tensors of torch."""
    if issparse(data) or "sparse" in str(getattr(data, "layout", "")):
        kind = getattr(data, "layout", None) or f"{data.format} matrix of scipy.sparse"
        raise TypeError(
            f"data: a model takes dense arrays, not a {kind}. Make it dense, if that fits into "
            "memory; otherwise write the loss as plain callables, which take sparse data: "
            "ksdmin.minimize(fun, x0, jac=jac, subsets=N), with X[idx] in fun(x, idx) and "
            "jac(x, idx)"
        )


def refuse(instead: str, **arguments: Any) -> None:
    """Refuse arguments that go with `instead`, where they are given."""
    for name, value in arguments.items():
        if value is not None:
            raise TypeError(f"{name}= goes with {instead}: leave it out")


def check_deterministic(
    name: str, first: float, second: float, tolerance: float, otherwise: str = ""
) -> None:
    """Refuse a model that gave two values for the same parameters and samples.

    `otherwise` is another way to mend it than to remove the randomness.
    """
    if abs(first - second) > tolerance * abs(first):
        raise ValueError(
            f"{name} is not deterministic, or its loss, residuals or data are not: the same "
            f"parameters and samples gave the loss {first!r}, then {second!r}. Remove the "
            f"randomness (eval mode; noise that is drawn once, as data){otherwise}"
        )


def check_curvature_of_function(curvature: Any) -> None:
    """Refuse a curvature that a plain function does not have."""
    if curvature not in (None, "hessian") and not callable(curvature):
        raise ValueError(
            f"curvature={curvature!r} needs a model with outputs and a loss, which a plain "
            "function does not have: leave it out, or give loss and data"
        )


def as_precond(precond: Any, *names: str) -> Any:
    """The argument `precond`: one of these `names`, None, an array or a callable.

    "fisher" is what the diagonal was called before.
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

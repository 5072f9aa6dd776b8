"""The methods of this package: what each brings to a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ksdmin._hf import step as hf
from ksdmin._ksd import start
from ksdmin._ksd import step as ksd
from ksdmin._ksd.state import learned_curvature
from ksdmin._ksd.steps.escape import escape
from ksdmin._options import HFOptions, MethodOptions, Options
from ksdmin._run.run import Run
from ksdmin._run.state import State


class Method(NamedTuple):
    """What a method of this package brings.

    Attributes
    ----------
    options : type
        The class of its options.
    prepare : callable
        (run, options, traits) -> the run with what the method adds to it.
    start, step : callable
        (run, ledger, x0) -> state, and (run, state) -> state.
    escape : callable
        (run, state) -> (state, whether it lies further down): where the gradient has vanished.
    move : callable
        (run, state) -> (run, state), in the dtype of the problem, which may be another one by now.
    extras : callable
        (run, state) -> fields of the result that only this method has.
    """

    options: type[MethodOptions]
    prepare: Callable[..., Any]
    start: Callable[..., Any]
    step: Callable[..., Any]
    escape: Callable[..., tuple[Any, bool]]
    move: Callable[..., tuple[Any, Any]]
    extras: Callable[..., dict[str, Any]]


def no_escape(run: Run, state: State) -> tuple[State, bool]:
    """No way down is looked for."""
    return state, False


def no_move(run: Run, state: State) -> tuple[Run, State]:
    """The arithmetic stays as it is."""
    return run, state


def no_extras(run: Run, state: State) -> dict[str, Any]:
    """SciPy's fields are all."""
    return {}


KSD = Method(Options, start.prepare, start.start, ksd.step, escape, start.moved, learned_curvature)
HF = Method(HFOptions, hf.prepare, hf.start, hf.step, no_escape, no_move, no_extras)
METHODS = {"ksd": KSD, "hf": HF}

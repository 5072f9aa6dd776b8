"""Presets: the choices that the loop leaves open, as in the paper and as in our defaults.

A preset says which rules apply, how a step is made and judged, and the defaults of the options.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ksdmin._ksd.factor import cholesky, eigenvectors
from ksdmin._options import KINDS, Options
from ksdmin._problem.arrays import EPS, Small
from ksdmin._problem.values import changed

# How are the eigenvalues of H_bar made positive?  (H_bar, floor, gram) -> H_hat

Gram = Callable[[], Small | None]
"""V V^T, computed when it is asked for; None where V is orthonormal."""


def floored(H_bar: Small, floor: float, gram: Gram = lambda: None) -> Small:
    """H_bar with its eigenvalues floored to `floor` times the largest (the paper's rule).

    The largest magnitude takes its place if no eigenvalue is positive, and the identity if all
    vanish. The eigenvalues are those in an orthonormal basis.
    """

    def positive(values: Small) -> Small:
        scale = values[-1] if values[-1] > 0 else abs(values[0])
        return np.asarray(np.maximum(values, floor * scale))

    return _recomposed(H_bar, positive, gram())


def absolute(H_bar: Small, floor: float, gram: Gram = lambda: None) -> Small:
    """H_bar with |lambda| in place of lambda, floored: negative curvature has a scale, too."""
    # Usually all eigenvalues lie above the floor, which Cholesky shows cheaply.
    if cholesky(H_bar, len(H_bar) * floor) is not None:
        return H_bar

    def positive(values: Small) -> Small:
        values = np.abs(values)
        return np.asarray(np.maximum(values, floor * values.max()))

    return _recomposed(H_bar, positive, gram())


def _recomposed(H_bar: Small, positive: Callable[[Small], Small], gram: Small | None) -> Small:
    """H_bar with these eigenvalues in an orthonormal basis."""
    if gram is not None:
        root, inverse = _roots(gram)
        H_hat = _recomposed(inverse @ H_bar @ inverse.T, positive, None)
        return np.asarray(root @ H_hat @ root.T)
    values, E = eigenvectors(H_bar)
    values = positive(values)
    return np.asarray((E * values) @ E.T) if values.min() > 0 else np.eye(len(values))


def _roots(gram: Small) -> tuple[Small, Small]:
    """B with B B^T = gram, which is positive definite up to rounding; and its inverse."""
    values, E = eigenvectors(gram)
    rounding = len(gram) * EPS
    lengths = np.maximum(values, rounding * values[-1]) ** 0.5
    return E * lengths, (E / lengths).T


# When does the inner search end?  (predicted, gained, share) -> bool


def never(predicted: float, gained: float, share: float) -> bool:
    """The paper: the search runs to its end."""
    return False


def below_share(predicted: float, gained: float, share: float) -> bool:
    """The next iteration is predicted to gain less than its share of the gain so far."""
    return predicted < share * gained


# Is the step taken?  (actual reduction, noise) -> bool


def always(actual: float, noise: float) -> bool:
    """The paper: every step is taken."""
    return True


def if_not_worse(actual: float, noise: float) -> bool:
    """A step is taken unless the value on A rose by more than noise."""
    return actual >= -noise and actual > -math.inf


@dataclass(frozen=True)
class Preset:
    """One answer to each question that the loop asks."""

    name: str  # as the option `preset` has it
    without: frozenset[str]  # the rules and the kinds of step that are switched off
    # How the eigenvalues of H_bar are made positive.
    spectrum: Callable[[Small, float, Gram], Small]
    stop_inner_search: Callable[[float, float, float], bool]  # when the inner search ends early
    accepts: Callable[[float, float], bool]  # whether a step is taken
    # Samples in B and in C, where the user asks for no size: fewer are not worth sampling. A model
    # that is not linear in its parameters takes fewer: many rough steps train it best.
    fewest: int
    # B and C have at most twice so many times the root of the number of samples at first, where the
    # user asks for no size. For a model that is not linear in its parameters they have half of
    # that, and A so many times as much, if this is half of all at most: from a bad start, few
    # samples show the way. None: 1 / K of the samples, and everything.
    per_root: int | None
    # Whether the value before a step is computed on the samples of the value after it, where A is a
    # part and those are others.
    compares: bool
    tilted: bool  # whether the search objective gets the slope of A at zero
    first_direction: bool  # whether e_1 stands in for the previous direction on the first iteration
    # Whether the quasi-Newton model follows how the curvature changes, for linear models.
    drifting: bool
    # The options where the user gives none; None: chosen by the problem.
    krylov_dim: int | None
    memory: int | None
    pairs: int | None
    floor: float
    diagonal_power: float | None
    damping: float | None

    def completed(self, options: Options) -> Options:
        """The user's options, completed by those of the preset."""
        missing = {name: getattr(self, name) for name in SET if getattr(options, name) is None}
        return changed(options, **missing)  # both are checked already


SET = ("krylov_dim", "memory", "pairs", "floor", "diagonal_power", "damping")

AS_PRINTED = Preset(
    name="paper",
    without=frozenset(KINDS) - {"krylov"} | {"forcing", "set_sizes", "width"},
    spectrum=floored,
    stop_inner_search=never,
    accepts=always,
    fewest=1,
    per_root=None,
    compares=False,
    tilted=False,
    first_direction=True,
    drifting=False,
    krylov_dim=20,
    memory=1,
    pairs=0,
    floor=1e-4,
    diagonal_power=1.0,
    damping=0.0,
)

# `fewest`, by examples/benchmarks/losses.py (its tuning half): 1000 takes 5% to 8% more passes, 100
# takes 6% more. `per_root`: examples/benchmarks/many_samples.py compares it with 1 / K in B for
# linear models. Sampling their A as well saves 10% of the passes, but takes 1.5 times the seconds,
# because copying rows takes longer than a pass over them; half as many in B take twice the passes
# on a9a with l2 = 1e-7. Small nets with 10,000 and 60,000 samples mostly need half of the passes.
# On an H200, 1.2 million frames of speech reach a training error of 26% in half of the seconds;
# the paper's auto-encoders are ahead for two seconds, and up to 3% behind in the next 30.
DEFAULT = Preset(
    name="default",
    without=frozenset(),
    spectrum=absolute,
    stop_inner_search=below_share,
    accepts=if_not_worse,
    fewest=300,
    per_root=5,
    compares=True,
    tilted=True,
    first_direction=False,
    drifting=True,
    krylov_dim=None,
    memory=None,
    pairs=None,
    floor=1e-10,
    diagonal_power=None,
    damping=None,
)

PRESETS = {preset.name: preset for preset in (DEFAULT, AS_PRINTED)}


class PresetOptions(Mapping[str, Any]):
    """The options of a preset: a read-only mapping that can be pickled."""

    def __init__(self, preset: Preset) -> None:
        self._options = {"preset": preset.name, **{name: getattr(preset, name) for name in SET}}

    def __getitem__(self, name: str) -> Any:
        return self._options[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def __or__(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._options, **changes}

    def __ror__(self, others: Mapping[str, Any]) -> dict[str, Any]:
        return {**others, **self._options}

    def __repr__(self) -> str:
        chosen = ", ".join(f"{name}={self[name]!r}" for name in SET)
        return f"<preset {self['preset']!r}: {chosen}>"


PAPER = PresetOptions(AS_PRINTED)
"""The options that make the algorithm the paper's: ``minimize(..., options=ksdmin.PAPER)``.

The same as ``options={"preset": "paper"}``. Change one as
``options=ksdmin.PAPER | {"krylov_dim": 80, "inner_maxiter": 30}``.
"""

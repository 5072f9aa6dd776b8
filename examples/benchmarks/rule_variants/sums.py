"""Sums of losses: the data sets of `losses.py`, and generated ones with very many samples.

Some need scikit-learn: see `kept_data` for machines that have none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from examples.benchmarks.regression_suite.linear_model import LinearModel
from examples.benchmarks.regression_suite.synthetic_data import decades
from examples.benchmarks.rule_variants import kept_data, preloaded

INDEX = "INDEX"
MOST_ENTRIES = 600_000  # of X: larger sets take too long for hundreds of variants
Data = tuple[Any, np.ndarray, Any]  # X, labels, and the loss or the number of classes


@dataclass(frozen=True)
class Regression:
    """Samples as `synthetic_data.decades` makes them, and the weight of |w|^2 / 2."""

    samples: int
    features: int
    decades: int
    l2: float
    classes: int = 2

    @property
    def name(self) -> str:
        kind = "logistic" if self.classes == 2 else f"softmax {self.classes}"
        scales = f"{self.decades} decades"
        return f"{kind} {self.samples}x{self.features}, {scales}, l2 {self.l2:g}"

    def data(self) -> Data:
        X, labels, _ = decades(self.samples, self.features, self.decades)
        if self.classes > 2:
            labels = softmax_labels(X, self.classes)
        return X, labels, self.classes


def softmax_labels(X: np.ndarray, classes: int) -> np.ndarray:
    """Drawn from a softmax model with scores of variance 1."""
    rng = np.random.default_rng(1)
    scores = X @ rng.standard_normal((X.shape[1], classes))
    return np.argmax(scores / scores.std() + rng.gumbel(size=scores.shape), axis=1)


LARGE_REGRESSIONS = {
    made.name: made
    for made in (
        Regression(120_000, 20, 2, 1e-4),
        Regression(200_000, 10, 3, 1e-6),
        Regression(120_000, 10, 1, 1e-6, classes=3),
    )
}


def suite() -> Any:
    """The sets of `losses.py`; they need scikit-learn."""
    from examples.benchmarks.regression_suite import loss_sets

    return loss_sets


def index() -> dict[str, Any]:
    """The sets and their halves, and the weights."""
    return preloaded.get("sums", INDEX, lambda: kept_data.load(INDEX, whole_index))


def whole_index() -> dict[str, Any]:
    try:
        sets = suite()
    except ImportError as error:
        raise SystemExit(
            f"The sums of losses need {error.name}: install it, or make the data where it is "
            f"installed (ablation.py --prepare) and bring the folder {kept_data.FOLDER}."
        ) from None
    tuning, aside = sets.HALVES
    halves = {tuning: "tuning", aside: "held-out"}
    return {
        "halves": {name: halves[half] for half in sets.HALVES for name in sets.names(half)},
        "l2": list(sets.L2),
    }


def names() -> list[str]:
    """A problem is a set and a weight."""
    about = index()
    return [f"{name}, l2 {l2:g}" for l2 in about["l2"] for name in about["halves"]]


def half(name: str) -> str:
    return index()["halves"][set_of(name)]


def set_of(name: str) -> str:
    return name.rsplit(", l2 ", 1)[0]


def data(name: str) -> Data:
    """Those of a problem, made once for all variants."""
    if name in LARGE_REGRESSIONS:
        return preloaded.get("sums", name, LARGE_REGRESSIONS[name].data)
    found = set_of(name)
    return preloaded.get("sums", found, lambda: kept_data.load(found, partial(load, found)))


def load(name: str) -> Data:
    return suite().load(name)


def problem(name: str) -> LinearModel:
    *data_and_loss, l2 = *data(name), float(name.rsplit("l2 ", 1)[1])
    return LinearModel(*data_and_loss, l2)


def prepare(say: Callable[[str], None] = print) -> None:
    """Keep the sets that are small enough, and their index."""
    about, kept = whole_index(), {}
    for name, half in about["halves"].items():
        try:
            made = load(name)
        except Exception as error:  # data that this machine does not have
            say(f"{name} is left out: {error}")
            continue
        if entries(made[0]) <= MOST_ENTRIES:
            kept_data.save(name, made)
            kept[name] = half
    kept_data.save(INDEX, about | {"halves": kept})
    say(f"{len(kept)} of {len(about['halves'])} sets in {kept_data.FOLDER}")


def entries(X: Any) -> int:
    """Those that are stored."""
    return int(getattr(X, "nnz", X.size))

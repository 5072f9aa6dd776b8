"""The rows at a size that two CPU cores train in seconds, off line, on stand-ins for their data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from examples.data import small_stand_ins
from examples.paper.published_rows import ROWS, Row

EPOCHS = 10  # of pre-training


def _shrunk(name: str, **changes: Any) -> Row:
    """A row with other data; the paper's numbers do not belong to it."""
    return replace(ROWS[name], published=None, **changes)


_SMALL = {
    "curves": _shrunk(
        "curves",
        title="CURVES (generated, small)",
        load=lambda seed: small_stand_ins.small_curves(),
        hidden=(100, 25, 6),
        krylov_dim=20,
    ),
    "mnist-ae": _shrunk(
        "mnist-ae",
        title="scikit-learn's digits, stand-in for MNIST AE",
        load=lambda seed: small_stand_ins.small_digit_images(),
        hidden=(60, 30, 12),
    ),
    "mnist-cl": _shrunk(
        "mnist-cl",
        title="scikit-learn's digits, stand-in for MNIST CL",
        load=lambda seed: small_stand_ins.small_digits(),
        hidden=(50, 50),
    ),
    "mnist-cl-pt": _shrunk(
        "mnist-cl-pt",
        title="scikit-learn's digits, stand-in for MNIST CL, pre-trained",
        load=lambda seed: small_stand_ins.small_digits(),
        hidden=(50, 50),
        pretraining_epochs=EPOCHS,
    ),
    "spoken-digits": _shrunk(
        "spoken-digits",
        title="synthetic clusters, stand-in for Aurora",
        load=lambda seed: small_stand_ins.clusters(40, 12, (3_000, 600, 300), seed=1),
        hidden=(40, 60),
        outputs=12,
    ),
    "starcraft": _shrunk(
        "starcraft",
        title="synthetic clusters, stand-in for Starcraft",
        load=lambda seed: small_stand_ins.clusters(300, 7, (300, 100, 50), seed),
    ),
    "starcraft-linear": _shrunk(
        "starcraft-linear",
        title="synthetic clusters, stand-in for Starcraft, linear model",
        load=lambda seed: small_stand_ins.clusters(300, 7, (300, 100, 50), seed),
    ),
}
SMALL = _SMALL | {
    f"{name}-pt": replace(
        _SMALL[name],
        title=f"{_SMALL[name].title}, pre-trained",
        pretraining_epochs=EPOCHS,
        beside=name,
    )
    for name in ("curves", "mnist-ae")
}

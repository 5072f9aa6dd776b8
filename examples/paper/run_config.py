"""What makes a run: two runs with the same configuration are the same run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from examples.paper.published_rows import ROWS, Row
from examples.paper.recurrent_rows import RECURRENT, shrunk
from examples.paper.small_rows import SMALL


@dataclass(frozen=True)
class Config:
    """A run's configuration.

    `l2`, `precision`, `curvature` and `rate` are what the run has, whether it was asked for or is
    the default; None where the method has no such thing. `passes` None: no limit; `held_out` None:
    what the data set holds out; `code` None: the row's own.
    """

    row: str
    method: str
    seed: int
    seconds: float
    l2: float
    precision: str
    curvature: str | None
    rate: float | None
    passes: float | None = None
    held_out: int | None = None
    code: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    profile: bool = False
    small: bool = False

    def __str__(self) -> str:
        words = [self.row, self.method, self.curvature or "", f"seed {self.seed}"]
        words += [f"rate {self.rate:g}" if self.rate is not None else "", f"l2 {self.l2:g}"]
        return ", ".join(word for word in words if word)


def rows(small: bool) -> dict[str, Row]:
    """The rows by name, at either size: the paper's, then those of its outlook."""
    if small:
        return SMALL | {name: shrunk(name) for name in RECURRENT}
    return ROWS | RECURRENT


def row_of(config: Config) -> Row:
    """The row, with another code layer where one is asked for."""
    row = rows(config.small)[config.row]
    if config.code is None:
        return row
    if row.outputs is not None:
        raise ValueError(f"--code is for auto-encoders: {config.row} has no code layer")
    return replace(row, hidden=(*row.hidden[:-1], config.code))

"""The variants: the default, a rule switched off, or one constant at another value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from examples.benchmarks.rule_variants.constants import SWITCH, Constant, constants
from ksdmin._options import KINDS, RULES

DEFAULT, CONTROL, REFERENCE = "default", "control", "reference"


@dataclass(frozen=True)
class Variant:
    """A run that differs from the default in one thing.

    Attributes
    ----------
    rule, constant, value : str
        What the table says.
    options : mapping
        Of `minimize`.
    changed : Constant or None
        What is changed in the source.
    to : float
        Its other value.
    """

    rule: str
    constant: str = ""
    value: str = ""
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    changed: Constant | None = None
    to: float = 0.0

    @property
    def name(self) -> str:
        return " ".join(part for part in (self.rule, self.constant, self.value) if part)


BASELINES = [
    Variant(DEFAULT),
    Variant(CONTROL),  # other draws, or a start that differs by 1e-6
    Variant(REFERENCE),  # many more passes over nets: what the best value is
]


def rules_off() -> list[Variant]:
    both = (*RULES, *KINDS)
    return [Variant(name, value="off", options={"without": [name]}) for name in both]


def other_values(constant: Constant) -> list[float]:
    """Half of it and twice it; of a number near 1, half and twice its distance to 1.

    So a share of 0.9 becomes 0.8 and 0.95, a factor of 1.2 becomes 1.1 and 1.4. A whole number
    stays one. A switch is turned.
    """
    value = constant.value
    if constant.kind == SWITCH:
        return [not value]
    if isinstance(value, int):
        return [value // 2 if value == 1 else -(-value // 2), 2 * value]
    if 0.5 <= value < 1:
        return [max(value / 2, 1 - 2 * (1 - value)), 1 - (1 - value) / 2]
    if 1 < value < 2:
        return [(1 + value) / 2, 2 * value - 1]
    return [value / 2, 2 * value]


def of_constant(constant: Constant) -> list[Variant]:
    return [
        Variant(constant.rule, constant.name, shown(to), changed=constant, to=to)
        for to in other_values(constant)
        if to != constant.value
    ]


def shown(value: float) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:.4g}"


def variants(only: Iterable[str] = ()) -> list[Variant]:
    """All of them; with `only`, those whose name has one of these words in it, and the default."""
    every = rules_off() + [v for constant in constants() for v in of_constant(constant)]
    wanted = tuple(only)
    chosen = [v for v in every if not wanted or any(word in v.name for word in wanted)]
    if wanted and not chosen:
        raise SystemExit(f"no rule or constant has {' or '.join(wanted)} in its name; see --list")
    return [*BASELINES, *chosen]

"""The variants: a rule switched off, or one constant at another value.

A constant is patched wherever it counts: in its module, in those that import it by value, and where
it is the default of a dataclass.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

from ksdmin._ksd import presets

PLAIN, ENDS, SUMS, MANY = "plain", "plain to the end", "sums", "many samples"
NETS, ROUNDED = "nets", "rounded nets"
RULES = "ksdmin._ksd.rules"
DEFAULT, CONTROL, REFERENCE = "default", "control", "reference"


@dataclass(frozen=True)
class Variant:
    """A run that differs from the default in one thing.

    Attributes
    ----------
    rule, constant, value : str
        What the table says.
    collections : tuple of str
        Where it is run.
    options : mapping
        Of `minimize`.
    constants : mapping
        Module: {constant: value}.
    defaults : mapping
        Class, as "module:name": {field: value}.
    preset : mapping
        Fields of the default preset.
    """

    rule: str
    constant: str
    value: str
    collections: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    constants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    preset: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return " ".join(part for part in (self.rule, self.constant, self.value) if part)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within this, runs are of this variant."""
        with ExitStack() as stack:
            for module, values in self.constants.items():
                stack.enter_context(mock.patch.multiple(module, **values))
            for path, values in self.defaults.items():
                stack.enter_context(patched_defaults(path, values))
            if self.preset:
                changed = {"default": replace(presets.DEFAULT, **self.preset)}
                stack.enter_context(mock.patch.dict(presets.PRESETS, changed))
            yield


def patched_defaults(path: str, values: Mapping[str, Any]) -> Any:
    """The defaults of some fields of a dataclass, at other values."""
    module, name = path.split(":")
    init = getattr(importlib.import_module(module), name).__init__
    parameters = inspect.signature(init).parameters.values()
    known = {p.name: p.default for p in parameters if p.default is not p.empty}
    if unknown := values.keys() - known.keys():
        raise AttributeError(f"{path} has no default of {', '.join(sorted(unknown))}")
    return mock.patch.object(init, "__defaults__", tuple((known | dict(values)).values()))


def of_rule(
    rule: str,
    constant: str,
    values: tuple,
    collections: tuple[str, ...],
    *,
    also_in: tuple[str, ...] = (),
    default_of: tuple[str, str] | None = None,
) -> list[Variant]:
    """One constant of a rule, at several values.

    `also_in` are modules that import it by value; `default_of` is the dataclass and the field that
    it is the default of. "A, B" stands for two constants, which change together.
    """
    return [
        of_module(f"{RULES}.{rule}", rule, constant, value, collections, also_in, default_of)
        for value in values
    ]


def of_module(
    module: str,
    rule: str,
    constant: str,
    value: Any,
    collections: tuple[str, ...],
    also_in: tuple[str, ...] = (),
    default_of: tuple[str, str] | None = None,
) -> Variant:
    names = constant.split(", ")
    patch = dict(zip(names, value, strict=True)) if len(names) > 1 else {constant: value}
    defaults = {f"{module}:{default_of[0]}": {default_of[1]: value}} if default_of else {}
    constants = dict.fromkeys((module, *also_in), patch)
    return Variant(
        rule, constant, shown(value), collections, constants=constants, defaults=defaults
    )


def shown(value: Any) -> str:
    """A value as the table has it."""
    return ", ".join(f"{part:g}" for part in (value if isinstance(value, tuple) else (value,)))


def without(rule: str, *collections: str) -> Variant:
    return Variant(rule, "", "off", collections, options={"without": [rule]})


def options(name: str, values: tuple, *collections: str) -> list[Variant]:
    return [
        Variant("dimensions", name, shown(value), collections, options={name: value})
        for value in values
    ]


def of_preset(name: str, values: tuple, *collections: str) -> list[Variant]:
    return [
        Variant("presets", name, shown(value), collections, preset={name: value})
        for value in values
    ]


def of_dimensions(name: str, values: tuple, *collections: str) -> list[Variant]:
    module = "ksdmin._ksd.dimensions"
    return [of_module(module, "dimensions", name, value, collections) for value in values]


def inner_search(share: float) -> Variant:
    collections = (PLAIN, SUMS, NETS)
    changed = {"stop_inner_search": presets.RelativeGain(share)}
    return Variant("presets", "RelativeGain", shown(share), collections, preset=changed)


ALL = (PLAIN, ENDS, SUMS, MANY, NETS, ROUNDED)
BASELINES = [
    Variant(DEFAULT, "", "", ALL),
    Variant(CONTROL, "", "", ALL),  # other draws, or a start that differs by 1e-6
    Variant(REFERENCE, "", "", (NETS, ROUNDED)),  # many more passes: what the best value is
]
DAMPING = [
    without("damping", NETS),
    *of_rule("damping", "FIRST_REACH", (1e-3, 0.1), (NETS,)),
    *of_rule("damping", "INITIAL_FACTOR", (0.03, 0.3), (NETS,)),
    *of_rule("damping", "ACCURATE", ((0.9, 1.2), (0.98, 1.05)), (NETS,)),
    *of_rule("damping", "NEGLIGIBLE_COST", (0.015, 0.15), (NETS,)),
]
IN_TRUST = (f"{RULES}.trust",)
FORCING = [
    without("forcing", PLAIN, SUMS),
    *of_rule("forcing", "LARGEST", (0.25, 0.9), (PLAIN, SUMS), default_of=("Forcing", "value")),
    *of_rule("forcing", "SMALLEST", (1e-4, 1e-2), (PLAIN, SUMS), also_in=IN_TRUST),
    *of_rule("forcing", "GRADIENT_FACTOR", (0.5, 1.0), (PLAIN, SUMS)),
    *of_rule("forcing", "SAFEGUARD_POWER", (1.2, 2.0), (PLAIN, SUMS)),
    *of_rule("forcing", "SAFEGUARD_ABOVE", (0.03, 0.3), (PLAIN, SUMS)),
]
WIDTH = [
    without("width", SUMS, NETS),
    *of_rule("width", "FACTOR", (1.1, 1.5), (SUMS, NETS)),
    *of_rule("width", "WIDEN_ABOVE, NARROW_BELOW", ((0.95, 0.9), (0.7, 0.6)), (SUMS, NETS)),
]
SET_SIZES = [
    without("set_sizes", SUMS, NETS),
    *of_rule("set_sizes", "MIN_REDUCTION", (0.25, 0.75), (SUMS, NETS)),
]
STALL = [
    without("stall", PLAIN, SUMS),
    *of_rule("stall", "PATIENCE", (2, 6), (PLAIN, ENDS, SUMS), default_of=("Stall", "patience")),
    *of_rule("stall", "GRADIENT_PROGRESS", (0.7, 0.99), (PLAIN, ENDS, SUMS)),
]
LEAP = ("ksdmin._ksd.model_step",)
TRUST = [
    without("trust", PLAIN, SUMS),
    *of_rule("trust", "WORTH", (0.01, 0.1), (PLAIN,), default_of=("Trust", "worth")),
    *of_rule("trust", "WORTH_FACTOR", (3, 30), (PLAIN,)),
    *of_rule("trust", "MIN_WORTH", (3e-4, 3e-3), (PLAIN,)),
    *of_rule("trust", "MAX_WORTH", (0.1, 0.9), (PLAIN, SUMS)),
    *of_rule("trust", "MIN_RESOLVED_GAIN", (0.4, 0.8), (PLAIN,)),
    *of_rule("trust", "MAX_LEAP", (3, 30), (PLAIN,), also_in=LEAP),
]
FINER = [
    without("finer_arithmetic", ROUNDED),
    *of_rule("finer_arithmetic", "REFINE_BELOW", (3, 30), (ROUNDED,)),
]
SIZES = [
    *map(inner_search, (0.005, 0.1)),
    *of_preset("fewest", (100, 1000), SUMS),
    *of_preset("most", (1000, 16_000), MANY),
    *options("memory", (0, 2, 5), PLAIN),
    *options("memory", (1, 2, 10), SUMS, NETS),
    *options("pairs", (5, 10, 80), PLAIN),
    *of_dimensions("PLAIN_DIM", (50, 200), PLAIN, SUMS),
    *of_dimensions("NET_WIDENING", (1, 4), NETS),
]
VARIANTS = [*BASELINES, *DAMPING, *FORCING, *WIDTH, *SET_SIZES, *STALL, *TRUST, *FINER, *SIZES]

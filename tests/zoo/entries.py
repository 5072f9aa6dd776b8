"""All entries: importing this file imports every family."""

from importlib import import_module

from tests.zoo.registry import ENTRIES

FAMILIES = (
    "physics",
    "networks",
    "odd_modules",
    "wrapped_modules",
    "frameworks",
    "functions",
    "autograd_entries",
    "jax_entries",
)
for family in FAMILIES:
    import_module(f"tests.zoo.{family}")

__all__ = ["ENTRIES"]

"""All entries: importing this file imports every family."""

from importlib import import_module

from tests.zoo.registry import ENTRIES

FAMILIES = (
    "physics",
    "recurrent",
    "attention",
    "convolution",
    "odd_modules",
    "wrapped_modules",
    "architectures",
    "frameworks",
    "functions",
    "autograd_entries",
    "jax_entries",
)
for family in FAMILIES:
    import_module(f"tests.zoo.{family}")

__all__ = ["ENTRIES"]

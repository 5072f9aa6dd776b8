"""How problems and their samples are described: short words for what a repr shows."""

from __future__ import annotations

from typing import Any

from array_api_compat import device


def counted(number: int, noun: str) -> str:
    """A number of things, in figures: "1 sample", "60,000 samples"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def unknowns(x0: Any) -> str:
    """How many variables, and what they are: "1,234 unknowns (float32, cpu)"."""
    dtype = str(x0.dtype).rsplit(".", maxsplit=1)[-1]  # torch's are torch.float32
    return f"{counted(int(x0.shape[0]), 'unknown')} ({dtype}, {device(x0)})"


def samples(subsets: Any) -> list[str]:
    """How many samples; nothing for a plain function."""
    if subsets is None:
        return []
    return ["your own sets" if subsets.n is None else counted(subsets.n, "sample")]


def given(name: str, value: Any) -> list[str]:
    """An argument: a function by its name, a word as it is; nothing where it was not given."""
    if value is None:
        return []
    function = getattr(value, "__name__", type(value).__name__)
    return [f"{name}={function}" if callable(value) else f"{name}={value!r}"]

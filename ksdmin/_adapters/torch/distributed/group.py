"""Which processes: what the user gave as ``process_group=``."""

from __future__ import annotations

import atexit
import os
import warnings
from typing import Any

import torch
import torch.distributed as dist

# What torchrun sets for each process it starts; `env://` reads it.
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def as_group(process_group: Any, device: torch.device) -> dist.ProcessGroup:
    """The group; "auto" is the default group, which is made where torchrun has started us."""
    if not dist.is_available():
        raise RuntimeError("process_group: this build of torch has no torch.distributed")
    if isinstance(process_group, str):
        process_group = _default_group(process_group, device)
    if not isinstance(process_group, dist.ProcessGroup):
        raise TypeError(
            'process_group: expected "auto" or a group of torch.distributed, such as '
            f"torch.distributed.group.WORLD, not {type(process_group).__name__}"
        )
    return process_group


def asked_for(process_group: Any) -> Any:
    """What the user gave, where that means several processes; None for an ordinary run.

    "auto" in a process that was started by itself, and not as one of several, is one.
    """
    alone = not dist.is_available() or not dist.is_initialized()
    if process_group == "auto" and alone and not any(name in os.environ for name in VARIABLES[:2]):
        return None
    if process_group is None:
        _warn_of_others()
    return process_group


_warned = False


def _warn_of_others() -> None:
    """Warn, once, of a process that is one of several but minimises by itself."""
    global _warned
    size = os.environ.get("WORLD_SIZE", "")
    if _warned or not size.isdigit() or int(size) < 2:
        return
    _warned = True
    warnings.warn(
        f"This process is one of several (WORLD_SIZE={size}), but from_torch was called without "
        "process_group: each process minimises over its own data, and ends at its own minimum. "
        "Pass process_group='auto' for one run of all of them.",
        UserWarning,
        stacklevel=5,  # the call of from_torch
    )


def _default_group(name: str, device: torch.device) -> Any:
    if name != "auto":
        raise ValueError(
            f'process_group={name!r}: expected "auto", or a group of torch.distributed'
        )
    if not dist.is_initialized():
        missing = [variable for variable in VARIABLES if variable not in os.environ]
        if missing:
            raise RuntimeError(
                'process_group="auto": no process group has been initialised, and the environment '
                f"does not say how (no {', '.join(missing)}). Start the script with torchrun, or "
                "call torch.distributed.init_process_group first, or leave process_group out"
            )
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
        atexit.register(_end_group)
    return dist.group.WORLD


def _end_group() -> None:
    """Nccl warns of a group that is left behind."""
    if dist.is_initialized():
        dist.destroy_process_group()

"""What the bits of a run may depend on, beside the code."""

import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy  # noqa: F401  loads its OpenBLAS, so that threadpoolctl sees it
import scipy.linalg  # noqa: F401  and that of scipy
import torch
from threadpoolctl import threadpool_info

PACKAGES = ("numpy", "scipy", "torch", "jax", "jaxlib", "autograd")


def fingerprint():
    return {
        "machine": platform.machine(),
        "cpu": cpu_model(),
        "openblas": sorted({a for lib in threadpool_info() if (a := lib.get("architecture"))}),
        "torch_cpu": torch.backends.cpu.get_cpu_capability(),
        "python": ".".join(map(str, sys.version_info[:2])),
        **{name: installed(name) for name in PACKAGES},
    }


def cpu_model():
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else ""


def installed(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return ""

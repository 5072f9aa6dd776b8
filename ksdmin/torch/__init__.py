"""Krylov Subspace Descent as an optimizer of torch, for training loops that exist already."""

try:
    from ksdmin.torch._optimizer import KSD
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "torch":
        raise
    raise ImportError("ksdmin.torch needs torch: pip install torch") from error

__all__ = ["KSD"]

"""What is kept of a run: a hash of all its numbers, and a few of them to read."""

import hashlib

import numpy as np

READABLE = ("status", "nit", "nfev", "njev", "nhev", "fun")
NUMBERS = (*READABLE, "passes")
# All columns but the seconds, which are never the same. They are named here, so that a new column
# changes no hash.
COLUMNS = (
    "iteration",
    "value",
    "gradient_norm",
    "step_norm",
    "accepted",
    "dim",
    "size_A",
    "size_B",
    "size_C",
    "inner_iterations",
    "nfev",
    "njev",
    "nhev",
    "passes",
)


def digest(res):
    """The entry of the reference file for a result."""
    kinds = {"status": int, "nit": int, "nfev": int, "njev": int, "nhev": int, "fun": float}
    return {"hash": hashed(res), **{name: kinds[name](res[name]) for name in READABLE}}


def hashed(res):
    x = to_numpy(res.x)
    sha = hashlib.sha256(f"{x.dtype} {x.shape} ".encode() + x.tobytes())
    for name in NUMBERS:
        sha.update(f"{name} {exact(res[name])} ".encode())
    for name in COLUMNS:
        column = " ".join(exact(entry) for entry in res.history[name])
        sha.update(f"{name} {column} ".encode())
    return sha.hexdigest()


def exact(number):
    """All bits of a number, whatever its type: 3 and np.float64(3.0) are the same."""
    return "None" if number is None else float(number).hex()


def to_numpy(x):
    return x.detach().cpu().numpy() if hasattr(x, "detach") else np.asarray(x)


def differences(expected, found):
    """What differs between two entries, in words; empty where nothing does."""
    if expected["hash"] == found["hash"]:
        return ""
    changed = [
        f"{name} {expected[name]!r} -> {found[name]!r}"
        for name in READABLE
        if exact(expected[name]) != exact(found[name])
    ]
    return ", ".join(changed) or "x, passes or the history (the other numbers are the same)"

"""States of a run as plain values that can be compared: arrays by their bytes, NaN as NaN."""

from dataclasses import fields, is_dataclass

import numpy as np

TIMES = {"seconds", "began"}  # no two calls share them


def snapshot(what):
    """All that `what` holds, recursively; of objects that only compute, their type."""
    if isinstance(what, (float, np.floating)):
        return np.float64(what).tobytes()
    if what is None or isinstance(what, (bool, int, str, bytes, slice)):
        return repr(what)
    if isinstance(what, (tuple, list)):
        return [snapshot(part) for part in what]
    if isinstance(what, (set, frozenset)):
        return sorted(what)
    if hasattr(what, "drawn_in"):  # a set that a function of the iteration has drawn
        return type(what).__name__, what.shape, what.drawn_in
    if hasattr(what, "shape"):
        return array(what)
    if is_dataclass(what):
        return type(what).__name__, {
            field.name: snapshot(getattr(what, field.name))
            for field in fields(what)
            if field.name not in TIMES
        }
    if hasattr(what, "traits"):  # a problem
        return type(what).__name__, snapshot(what.traits)
    return type(what).__name__


def array(u):
    """An array of numpy or torch, in a run's dtype."""
    host = u.detach().cpu().numpy() if hasattr(u, "detach") else np.asarray(u)
    return str(host.dtype), host.shape, host.tobytes()

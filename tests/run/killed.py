"""A run in a process of its own, which may kill itself: python -m tests.run.killed RUN PATH AT.

AT counts evaluations (and, as "write:3", the writes to a checkpoint): the process is
gone there, without a chance to do anything. Without it the run goes to its end, and a digest of its
result is printed.
"""

import hashlib
import os
import signal
import sys
from pathlib import Path

import numpy as np

import ksdmin
from ksdmin._run.evaluator import Evaluator
from tests.ksd.snapshots import snapshot
from tests.run import runs
from tests.run.comparison import FIELDS


def killed_at(count):
    calls = 0

    def count_call(*_):
        nonlocal calls
        calls += 1
        if calls == count:
            os.kill(os.getpid(), signal.SIGKILL)

    return count_call


def wrap(owner, name, before):
    own = getattr(owner, name)

    def wrapped(*args, **kwargs):
        before()
        return own(*args, **kwargs)

    setattr(owner, name, wrapped)


def digest(res):
    parts = [snapshot(res[name]) for name in FIELDS]
    parts += [res.history[name].tolist() for name in ksdmin.History.columns if name != "seconds"]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def main(name, path, at=""):
    if at.startswith("write:"):
        before = killed_at(int(at.removeprefix("write:")))
        for owner, verb in ((np.lib.format, "write_array"), (os, "fsync"), (os, "replace")):
            wrap(owner, verb, before)
    elif at:
        wrap(Evaluator, "_charge", killed_at(int(at)))
    arguments = runs.ALL[name]()
    if Path(path).exists():
        res = ksdmin.resume(path, arguments["fun"])
    else:
        options = {"checkpoint": path, "checkpoint_every": 1, **arguments.get("options", {})}
        res = ksdmin.minimize(**{**arguments, "options": options})
    print(digest(res))


if __name__ == "__main__":
    main(*sys.argv[1:])

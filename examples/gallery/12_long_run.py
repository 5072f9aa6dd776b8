"""
12. A long run: broken off, resumed, on two processes
=====================================================

A run of hours meets a full disk, a pre-empted machine, a colleague who needs the GPU. Here a small
one meets all of that: it is broken off in mid-run and goes on as if nothing had happened; it is
watched on samples that it does not train on; and in the end two processes go on with it, each with
half of the data.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import ksdmin

folder = tempfile.TemporaryDirectory()
here = Path(folder.name)

# %%
# The task
# --------
# For long runs, keep the model and the data in a module, so that several scripts can use them. This
# one has a net of 2,410 parameters that reads scikit-learn's digits.

TASK = '''
import torch
from sklearn.datasets import load_digits

images, labels = load_digits(return_X_y=True)
images, labels = torch.tensor(images / 16), torch.tensor(labels)
order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
train, test = order[:1400], order[1400:]
loss = torch.nn.CrossEntropyLoss()


def make_net():
    torch.manual_seed(0)
    layers = torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10)
    return torch.nn.Sequential(*layers).double()


def samples(rank=0, size=1):
    """The training samples of one process of several."""
    mine = train.tensor_split(size)[rank]
    return images[mine], labels[mine]
'''
(here / "task.py").write_text(TASK)
sys.path.insert(0, str(here))
import task  # noqa: E402 - it was only written now

net = task.make_net()
problem = ksdmin.from_torch(net, task.loss, task.samples(), l2=1e-3)
print(problem)

# %%
# Broken off
# ----------
# The option ``checkpoint`` names a file. It is written at the start, every minute (here: every 5
# iterations), at the end, and before an exception passes on. It replaces the last one only when it
# is complete, so that there is always a whole one.

OPTIONS = {"maxiter": 40, "gtol": 1e-7}
path = here / "run.ksd"


def power_cut(intermediate_result):
    if intermediate_result.nit == 20:
        raise OSError("the machine goes down")


try:
    options = {**OPTIONS, "checkpoint": path, "checkpoint_every": 5}
    ksdmin.minimize(problem, rng=0, callback=power_cut, options=options)
except OSError as error:
    first = error.ksdmin_result  # nothing is lost in this process, either
    print(f"{error}, after {first.nit} iterations: loss {first.fun:.6f}")
print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB, for {problem.x0.numel():,} parameters")

# %%
# Resumed
# -------
# :func:`ksdmin.resume` takes the file and the problem, made again: functions and data are not in
# the file. (It is not a pickle: reading it runs no code.) From there on the run is the same as an
# uninterrupted one, to the last bit.

again = ksdmin.from_torch(task.make_net(), task.loss, task.samples(), l2=1e-3)
resumed = ksdmin.resume(path, again)
whole = ksdmin.minimize(problem, rng=0, options=OPTIONS)
print(f"resumed: loss {resumed.fun:.12f} after {resumed.nit} iterations")
print(f"whole:   loss {whole.fun:.12f} after {whole.nit} iterations")
print("the same to the last bit:", bool((resumed.x == whole.x).all()))

# %%
# Watched
# -------
# ``validation`` is any function of x, here the loss on the other 397 digits. When it has not fallen
# for ``patience`` iterations, the run ends, and ``res.validation`` has the best point.
# :class:`ksdmin.Solver` is the same run in a loop of your own, one iteration at a time:

unseen = task.images[task.test], task.labels[task.test]
others = ksdmin.from_torch(task.make_net(), task.loss, unseen)
options = {**OPTIONS, "maxiter": 100, "validation": others.value, "patience": 10}
errors = []
solver = ksdmin.Solver(problem, rng=0, options=options)
for iteration in solver:
    errors.append((iteration.fun, others.value(iteration.x)))
res = solver.result()
problem.load(res.validation.x)
right = (net(unseen[0]).argmax(1) == unseen[1]).double().mean()
print(f"{ksdmin.Status(res.status).name} after {res.nit} iterations, best at {res.validation.nit}:")
print(f"loss {res.validation.fun:.4f} and {right:.1%} right on digits that it has not seen")

# %%
# On two processes
# ----------------
# With ``process_group="auto"`` the processes that torchrun starts share one run. Each has its own
# samples; the objective is the mean over all of them. Any number of processes can go on with a
# checkpoint: here two go on with the file of one.

TRAIN = """
import os
import ksdmin, task

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
samples = task.samples(rank, size)
problem = ksdmin.from_torch(
    task.make_net(), task.loss, samples, l2=1e-3, process_group="auto"
)
res = ksdmin.resume("half.ksd", problem, options={"maxiter": 40})
if rank == 0:
    sent = res.history["reduced_bytes"][-1] / 1e6
    print(f"{size} processes: {res.fun:.12f} {res.nit} {sent:.1f}")
"""
(here / "train.py").write_text(TRAIN)
half = {**OPTIONS, "maxiter": 20, "checkpoint": here / "half.ksd"}
ksdmin.minimize(again, rng=0, options=half)  # one process, the first 20 iterations

# %%
# ``torchrun --nproc-per-node=2 train.py`` in a terminal; from Python:

torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
same_packages = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
ran = subprocess.run(
    [*torchrun, "train.py"],
    cwd=here,
    env=same_packages,
    stdout=subprocess.PIPE,
    text=True,
    check=True,
)
print(ran.stdout)
words = ran.stdout.split()
loss_of_two, sent = float(words[2]), float(words[4])
print(f"difference from one process: {abs(loss_of_two - whole.fun):.0e}")
print(f"each process has sent {sent:.1f} MB")

# %%
# Each process draws its own labels for the Kronecker factors of the preconditioner, so that the
# path is another one than that of one process; the objective and its minimum are the same. (With
# ``precond="diagonal"`` only the rounding of sums differs.) :doc:`/distributed` has what travels,
# how far it scales, and what happens when a process fails; :doc:`/long_runs` all about files,
# progress and the end of a run.

figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
axes.semilogy(whole.history["value"], linewidth=5, alpha=0.35, label="never broken off")
axes.semilogy(resumed.history["value"], "k--", linewidth=1.2, label="broken off and resumed")
axes.axvline(first.nit, color="0.6", linewidth=1, label="the power cut")
seen = np.arange(1, len(errors) + 1)
axes.semilogy(seen, [other for _, other in errors], "C1", label="other digits (no penalty)")
axes.set(title="A run that goes on", xlabel="iteration", ylabel="loss")
axes.legend()

folder.cleanup()
plt.show()

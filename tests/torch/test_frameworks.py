"""The optimizer within Lightning and DeepXDE, where they are installed.

Each in a process of its own: they change torch's defaults, and warn of each other.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LIGHTNING = """
import sys, torch, lightning, ksdmin.torch
from torch.utils.data import DataLoader, TensorDataset

class Sine(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
        )
        self.losses = []

    def training_step(self, batch, _):
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.net(inputs), targets)

    def configure_optimizers(self):
        return ksdmin.torch.KSD(self.parameters(), iterations=2)

    def on_train_batch_end(self, outputs, *_):
        self.losses.append(float(outputs["loss"]))

def fit(module, epochs, checkpoint=None):
    trainer = lightning.Trainer(
        max_epochs=epochs, accelerator="cpu", precision="64-true", logger=False,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
        default_root_dir=sys.argv[1],
    )
    trainer.fit(module, loader, ckpt_path=checkpoint)
    return trainer

X = torch.linspace(-2, 2, 50, dtype=torch.float64)[:, None]
loader = DataLoader(TensorDataset(X, torch.sin(3 * X)), batch_size=50)
torch.manual_seed(0)
whole = Sine().double()
start = {name: p.clone() for name, p in whole.state_dict().items()}
fit(whole, 20)

half = Sine().double()
half.load_state_dict(start)
fit(half, 10).save_checkpoint(sys.argv[1] + "/half.ckpt")
rest = Sine().double()
trainer = fit(rest, 20, sys.argv[1] + "/half.ckpt")
assert trainer.optimizers[0].last.iteration == 40
assert all(map(torch.equal, whole.parameters(), rest.parameters()))
print(whole.losses[0], whole.losses[-1])
"""

DEEPXDE = """
import numpy as np, torch, deepxde as dde, ksdmin.torch

dde.config.set_default_float("float64")
dde.config.set_random_seed(0)

def pde(x, y):  # -y'' = pi^2 sin(pi x), with the solution sin(pi x)
    return -dde.grad.hessian(y, x) - np.pi**2 * torch.sin(np.pi * x)

line = dde.geometry.Interval(-1, 1)
ends = dde.icbc.DirichletBC(line, lambda x: 0, lambda _, on_boundary: on_boundary)
data = dde.data.PDE(line, pde, ends, 24, 2, solution=lambda x: np.sin(np.pi * x), num_test=50)
net = dde.nn.FNN([1, 20, 20, 1], "tanh", "Glorot uniform")
model = dde.Model(data, net)
model.compile(ksdmin.torch.KSD(net.parameters(), iterations=5), metrics=["l2 relative error"])
history, _ = model.train(iterations=12, display_every=12, verbose=0)
assert model.opt.last.iteration == 60
print(np.sum(history.loss_train[0]), np.sum(history.loss_train[-1]))
"""


def first_and_last(script, tmp_path, **environment):
    """The numbers that a script prints in its last line."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    ran = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return map(float, ran.stdout.splitlines()[-1].split())


@pytest.mark.skipif(not find_spec("lightning"), reason="no lightning")
def test_lightning(tmp_path):
    """Automatic optimisation: the closure has called backward, and its loss is detached."""
    first, last = first_and_last(LIGHTNING, tmp_path)
    assert last < 0.3 * first


@pytest.mark.skipif(not find_spec("deepxde"), reason="no deepxde")
def test_deepxde(tmp_path):
    first, last = first_and_last(DEEPXDE, tmp_path, DDE_BACKEND="pytorch")
    assert last < 0.2 * first

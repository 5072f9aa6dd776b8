"""The optimizer within Lightning, where it is installed; others: tests/interop.

In a process of its own: it changes torch's defaults.
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


@pytest.mark.skipif(not find_spec("lightning"), reason="no lightning")
def test_lightning(tmp_path):
    """Automatic optimisation: the closure has called backward, and its loss is detached."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    ran = subprocess.run(
        [sys.executable, "-c", LIGHTNING, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    first, last = map(float, ran.stdout.splitlines()[-1].split())
    assert last < 0.3 * first

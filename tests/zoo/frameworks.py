"""Modules of other libraries, where these are installed."""

from importlib.util import find_spec

import torch
from torch import nn

from tests.zoo.registry import Model, entry

if find_spec("lightning") is not None:

    @entry("torch")
    def lightning_module():
        import lightning

        class Lit(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

            def forward(self, x):
                return self.net(x)

            def training_step(self, batch, batch_idx):
                return nn.functional.mse_loss(self(batch[0]), batch[1])

        X, Y = (torch.randn(9, d, dtype=torch.float64) for d in (3, 2))
        return Model(Lit(), nn.MSELoss(), (X, Y))


if find_spec("deepxde") is not None:

    @entry("torch")
    def deepxde_network():
        import deepxde

        net = deepxde.nn.pytorch.FNN([2, 5, 5, 1], "tanh", "Glorot normal")
        X, Y = (torch.randn(9, d, dtype=torch.float64) for d in (2, 1))
        return Model(net, nn.MSELoss(), (X, Y))

"""The rows of the paper's Tables 1 and 2."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import nn

from examples.data import curves, mnist, spoken_digits, starcraft
from examples.data.splits import Splits
from examples.harness.net_training.tasks import AUTO_ENCODING, CLASSIFICATION, Task
from examples.paper import rbm_pretraining, table1_networks


@dataclass(frozen=True)
class Published:
    """The paper's Table 2: (train error, CV error) of HF and KSD; KSD's time, HF's being 1."""

    hf: tuple[float, float]
    ksd: tuple[float, float]
    time: float


@dataclass(frozen=True)
class Row:
    """An experiment.

    Attributes
    ----------
    title : str
        As tables and figures call it.
    load : callable
        seed -> the data; most data sets have one split for all seeds.
    hidden : tuple of int
        Layers between inputs and outputs; of an auto-encoder down to the code.
    outputs : int or None
        Classes; None for an auto-encoder.
    l2 : float
        The weight of |x|^2 / 2.
    krylov_dim : int
        The paper's K.
    hf_share : float
        The share of the samples in HF's curvature set.
    published : Published or None
        The paper's numbers.
    splits_by_seed : bool
        Whether the seed chooses the split.
    pretraining_epochs : int
        Of each hidden layer as a restricted Boltzmann machine; 0: the sparse start.
    beside : str or None
        The row in whose table this one is shown.
    """

    title: str
    load: Callable[[int], Splits]
    hidden: tuple[int, ...]
    outputs: int | None
    l2: float
    krylov_dim: int
    hf_share: float
    published: Published | None
    splits_by_seed: bool = False
    pretraining_epochs: int = 0
    beside: str | None = None

    @property
    def hf_damping(self) -> float:
        """HF's first lambda: Martens' 45 belongs to losses summed over hundreds of pixels."""
        return 45.0 if self.outputs is None else 1.0

    @property
    def task(self) -> Task:
        """Auto-encoding where there are no classes."""
        return AUTO_ENCODING if self.outputs is None else CLASSIFICATION

    def net(self, inputs: int, seed: int) -> nn.Module:
        """The network where it starts."""
        if self.outputs is None:
            net = table1_networks.auto_encoder(inputs, self.hidden)
        else:
            net = table1_networks.network((inputs, *self.hidden, self.outputs))
        table1_networks.initialise_sparsely(net, seed)
        return net


MNIST_CL = Row(
    title="MNIST CL",
    load=lambda seed: mnist.load_digits(),
    hidden=(500, 500, 2000),
    outputs=10,
    l2=1e-4,
    krylov_dim=20,
    hf_share=1 / 8,
    published=Published(hf=(0.0, 2.01), ksd=(0.0, 1.70), time=0.6),
)
STARCRAFT = Row(
    title="Starcraft (Weber-Mateas games)",
    load=starcraft.load,
    hidden=(10,),
    outputs=7,
    l2=1e-3,
    krylov_dim=20,
    hf_share=1.0,
    published=Published(hf=(0.0, 11.0), ksd=(0.0, 5.0), time=0.7),
    splits_by_seed=True,
)
CURVES = Row(
    title="CURVES (regenerated)",
    load=lambda seed: curves.load(),
    hidden=(400, 200, 100, 50, 25, 6),
    outputs=None,
    l2=2e-5,
    krylov_dim=80,
    hf_share=1 / 4,
    published=Published(hf=(0.13, 0.19), ksd=(0.17, 0.25), time=0.2),
)
MNIST_AE = Row(
    title="MNIST AE",
    load=lambda seed: mnist.load_images(),
    hidden=(1000, 500, 250, 30),
    outputs=None,
    l2=1e-4,
    krylov_dim=20,
    hf_share=1 / 8,
    published=Published(hf=(1.7, 2.7), ksd=(1.8, 2.5), time=0.2),
)
ROWS = {
    "curves": CURVES,
    "mnist-ae": MNIST_AE,
    "mnist-cl": MNIST_CL,
    "mnist-cl-pt": replace(
        MNIST_CL,
        title="MNIST CL, pre-trained",
        published=Published(hf=(0.0, 1.40), ksd=(0.0, 1.29), time=0.6),
        pretraining_epochs=rbm_pretraining.EPOCHS,
    ),
    "spoken-digits": Row(
        title="Spoken digits (stand-in for Aurora)",
        load=lambda seed: spoken_digits.load(),
        hidden=(512, 1024, 1536),
        outputs=spoken_digits.STATES,
        l2=1e-5,
        krylov_dim=20,
        hf_share=1 / 8,
        published=Published(hf=(5.1, 8.7), ksd=(4.5, 8.1), time=0.3),
    ),
    "starcraft": STARCRAFT,
    **{
        f"{name}-pt": replace(
            row,
            title=f"{row.title}, pre-trained",
            published=None,
            pretraining_epochs=rbm_pretraining.EPOCHS,
            beside=name,
        )
        for name, row in (("curves", CURVES), ("mnist-ae", MNIST_AE))
    },
    "starcraft-linear": replace(
        STARCRAFT,
        title="Starcraft (Weber-Mateas games), linear model",
        hidden=(),
        l2=1e-2,
        published=None,
        beside="starcraft",
    ),
}

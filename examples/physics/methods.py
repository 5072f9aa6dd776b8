"""The methods by their names."""

from __future__ import annotations

from examples.physics.experiment import Experiment
from examples.physics.ksdmin_methods import BFGS, HF, KSD, LBFGSB, by_ksdmin, by_scipy
from examples.physics.lbfgs_methods import train_by_adam_then_lbfgs, train_by_lbfgs
from examples.physics.levenberg_marquardt import train_by_levenberg_marquardt
from examples.physics.training import Train

METHODS: dict[str, Train] = {
    "ksd": by_ksdmin("ksd", KSD),
    "hf": by_ksdmin("hf", HF),
    "lbfgs": train_by_lbfgs,
    "adam-lbfgs": train_by_adam_then_lbfgs,
    "bfgs": by_scipy("BFGS", BFGS),
    "lbfgsb": by_scipy("L-BFGS-B", LBFGSB),
    "lm": train_by_levenberg_marquardt,
}
NAMES = {
    "ksd": "KSD",
    "hf": "HF",
    "lbfgs": "torch L-BFGS",
    "adam-lbfgs": "Adam, then L-BFGS",
    "bfgs": "SciPy BFGS",
    "lbfgsb": "SciPy L-BFGS-B",
    "lm": "exact Levenberg-Marquardt",
}


def methods_for(experiment: Experiment, small: bool) -> list[str]:
    """What it is compared with: L-BFGS-B if there are bounds, else BFGS if its matrix is small."""
    bfgs = (experiment.bfgs or small) and not experiment.bounded
    only_some = {"bfgs": bfgs, "lbfgsb": experiment.bounded}
    return [name for name in METHODS if only_some.get(name, True)]

"""The methods by name.

All minimise the same objective from the same start. Whole-set methods and ksdmin's own call the
same problem object; the first-order ones step over mini-batches, each with a grid of four rates.
"""

from __future__ import annotations

from examples.harness.net_training.full_batch_methods import (
    NO_LIMIT,
    WINDOW,
    train_by_scipy,
    train_by_torch_lbfgs,
)
from examples.harness.net_training.krylov_methods import (
    train_as_in_paper,
    train_by_hf,
    train_by_ksd,
)
from examples.harness.net_training.method_interface import Method
from examples.harness.net_training.mini_batch_methods import (
    train_by_adam,
    train_by_muon,
    train_by_nesterov,
)
from examples.harness.net_training.tasks import ADDING, AUTO_ENCODING, CLASSIFICATION

TASKS = (AUTO_ENCODING, CLASSIFICATION, ADDING)
ADAMS_RATES = {task.name: (3e-4, 1e-3, 3e-3, 1e-2) for task in TASKS}
METHODS = {
    "ksd": Method(train_by_ksd(), precision="high", has_curvature=True),
    "ksd-diagonal": Method(train_by_ksd("diagonal"), precision="high", has_curvature=True),
    "ksd-krylov": Method(
        train_by_ksd(without=["gauss-newton"]), precision="high", has_curvature=True
    ),
    "ksd-paper": Method(train_as_in_paper(), precision="high", has_curvature=True),
    "hf": Method(train_by_hf("diagonal"), precision="highest", has_curvature=True),
    "hf-kronecker": Method(train_by_hf("auto"), precision="highest", has_curvature=True),
    "lbfgsb": Method(
        train_by_scipy("L-BFGS-B", {"maxcor": WINDOW, "ftol": 0.0, "maxfun": NO_LIMIT}),
        precision="highest",
    ),
    "torch-lbfgs": Method(train_by_torch_lbfgs, precision="highest"),
    "ncg": Method(train_by_scipy("CG", {}), precision="highest"),
    "nag": Method(
        train_by_nesterov,
        precision="high",
        rates={
            AUTO_ENCODING.name: (3e-4, 1e-3, 3e-3, 1e-2),
            CLASSIFICATION.name: (1e-2, 3e-2, 1e-1, 3e-1),
            ADDING.name: (1e-3, 3e-3, 1e-2, 3e-2),
        },
    ),
    "adam": Method(
        train_by_adam,
        precision="high",
        rates=ADAMS_RATES,
    ),
    "muon": Method(train_by_muon, precision="high", rates=ADAMS_RATES),
}

"""Presets: the paper's choices and ours, and that the loop listens to them."""

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der, rosen_hess_prod

import ksdmin
from ksdmin._ksd.presets import PRESETS
from ksdmin._options import KINDS, RULES, Options, parse_options
from ksdmin._options import PRESETS as NAMES
from tests.linear_models import squares


def run(n=10, options=ksdmin.PAPER, **more):
    options = {"maxiter": 5, **options, **more}
    x0 = np.linspace(-1.2, 1, n)
    return ksdmin.minimize(rosen, x0, jac=rosen_der, hessp=rosen_hess_prod, options=options)


# PAPER


def test_paper_has_the_papers_numbers():
    options = parse_options(ksdmin.PAPER, Options)
    assert (options.krylov_dim, options.memory, options.floor) == (20, 1, 1e-4)
    assert options.preset == "paper"


def test_paper_cannot_be_changed_but_extended():
    with pytest.raises(TypeError):
        ksdmin.PAPER["krylov_dim"] = 80
    more = ksdmin.PAPER | {"krylov_dim": 80}
    assert (more["krylov_dim"], more["floor"]) == (80, 1e-4)
    assert ksdmin.PAPER["krylov_dim"] == 20


def test_paper_adjoins_previous_directions():
    """e_1 stands in on the first iteration; then the last step, or as many as `memory` says."""
    assert run(krylov_dim=4).history["dim"].tolist() == [0, 5, 5, 5, 5, 5]
    assert run(krylov_dim=4, memory=3).history["dim"].tolist() == [0, 5, 6, 7, 7, 7]
    assert run(krylov_dim=4, memory=0).history["dim"].tolist() == [0, 4, 4, 4, 4, 4]


def few_samples(options):
    """On sets of a few samples many steps lead up."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 3)), 5 * rng.standard_normal(40)
    given = {**squares(X, y), "hessp": None, "x0": np.zeros(3), "rng": 0}
    subsets = ksdmin.Subsets(40, curvature=4, search=4)
    return ksdmin.minimize(**given, subsets=subsets, options={**options, "maxiter": 12})


def test_paper_takes_every_step_and_keeps_the_sizes():
    res = few_samples(ksdmin.PAPER | {"krylov_dim": 2})
    history = res.history
    assert (np.diff(history["value"]) > 0).sum() > 3
    assert history["accepted"].all()
    assert (history["step_norm"][1:] > 0).all()
    assert set(history["size_B"]) == set(history["size_C"]) == {4}
    assert res.fun == min(history["value"])  # the best point is not lost


def test_the_default_takes_no_step_up_and_lets_the_sets_grow():
    history = few_samples({"krylov_dim": 2}).history
    values, accepted = history["value"], history["accepted"]
    assert (np.diff(values) <= 1e-12 * abs(values[0])).all()
    assert not accepted.all()
    assert (history["step_norm"][~accepted] == 0).all()
    assert history["size_B"][-1] > 4


def history_of(res):
    columns = [name for name in res.history.columns if name != "seconds"]
    return {name: res.history[name].tobytes() for name in columns}


def test_presets_by_name_are_the_same_runs():
    more = {"krylov_dim": 3, "damping": 0.5}
    for of in (lambda options: run(12, options), few_samples):
        named, given = of({"preset": "paper", **more}), of(ksdmin.PAPER | more)
        assert named.x.tobytes() == given.x.tobytes()
        assert history_of(named) == history_of(given)
    assert history_of(run(12, {"preset": "default"})) == history_of(run(12, {}))


def test_names_agree():
    assert set(PRESETS) == set(NAMES)
    assert all(preset.without <= {*RULES, *KINDS} for preset in PRESETS.values())

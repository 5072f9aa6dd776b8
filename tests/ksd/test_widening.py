"""Widening: a space on samples grows as far as it pays on other samples."""

import numpy as np
import pytest

import ksdmin
from tests.linear_models import squares


def decades(n_samples=4000, n=100):
    """Least squares whose Hessian spans six decades: a space of 20 vectors is far too small."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_samples, n)) * np.geomspace(1, 1e-3, n)
    y = X @ rng.standard_normal(n)
    subsets = ksdmin.Subsets(n_samples, 1.0, 0.25, 0.25)
    return {**squares(X, y), "x0": np.zeros(n), "subsets": subsets, "rng": 0}


@pytest.mark.parametrize("options", [{}, {"krylov_dim": 20}, {"without": ["width"]}])
def test_a_run_widens_its_space_unless_it_is_told_not_to(options):
    res = ksdmin.minimize(**decades(), options={"maxiter": 12, **options})
    on_samples = res.history["size_B"][:-1] < 4000  # a row has the sets of the next step
    most = max(res.history["dim"][1:][on_samples])
    first = options.get("krylov_dim", 4000 // 1000) + 5  # with the previous directions
    assert most <= first if options else most > first


# Where every set is the whole


D = np.geomspace(1e-3, 1, 2000)  # each axis has as steep a slope at the start


BADLY_SCALED = {
    "fun": lambda x: float(np.sum(D * x**2 / 2 - np.cos(x) / 10)),
    "x0": 1 / D,
    "jac": lambda x: D * x + np.sin(x) / 10,
}


def its_product(x, p):
    return (D + np.cos(x) / 10) * p


@pytest.mark.parametrize("hessp", [its_product, None], ids=["products", "differences"])
def test_no_space_costs_more_than_the_run_before_it(hessp):
    history = ksdmin.minimize(**BADLY_SCALED, hessp=hessp).history
    assert history["njev"][1] <= 20
    assert history["value"][1] < history["value"][0]
    spent = (history["njev"] + history["nhev"])[:-1]
    dims = history["dim"][1:]
    assert (dims <= np.maximum(5, spent)).all()
    assert dims.max() > 5


@pytest.mark.parametrize("options", [{"krylov_dim": 40}, {"without": ["width"]}])
def test_a_space_of_your_own_size_is_not_limited(options):
    res = ksdmin.minimize(**BADLY_SCALED, options={"maxiter": 1, **options})
    assert res.history["dim"][1] > 5

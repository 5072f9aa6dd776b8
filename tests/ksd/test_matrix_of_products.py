"""Newton steps of sums of losses whose matrix is made of a product for each unknown."""

import numpy as np
import pytest

import ksdmin
from tests.linear_models import logistic

M, N = 5000, 40


def regression(decades):
    """A logistic regression with features whose scales spread over some decades."""
    draw = np.random.default_rng(0)
    scale = np.logspace(-decades / 2, decades / 2, N)
    X = draw.standard_normal((M, N)) * scale
    scores = X @ (draw.standard_normal(N) / scale)
    return logistic(X, np.where(scores + draw.standard_normal(M) > 0, 1.0, -1.0), l2=1e-6)


def run(loss, subsets=M, hessp=None, **options):
    given = {**loss, "hessp": hessp, "x0": np.zeros(N), "subsets": subsets, "rng": 0}
    return ksdmin.minimize(**given, options=options)


BADLY_SCALED = regression(6)


@pytest.mark.parametrize("hessp", [None, BADLY_SCALED["hessp"]], ids=["differences", "hessp"])
def test_badly_scaled_features_take_no_more_passes_than_without_samples(hessp):
    """They took 2,152 and 802, where the whole set takes 307 and 346."""
    res = run(BADLY_SCALED, hessp=hessp)
    assert res.success
    assert res.kinds["newton"] > 0
    assert res.history["passes"][-1] < 300
    assert np.abs(BADLY_SCALED["jac"](res.x)).max() <= 1e-5


def test_well_scaled_features_need_no_matrix():
    assert "newton" not in run(regression(0)).kinds


@pytest.mark.parametrize(
    "given",
    [{"without": ["newton"]}, {"subsets": ksdmin.Subsets(M, curvature=300)}],
    ids=["switched off", "sizes of the user's"],
)
def test_there_is_none_where_the_user_says_so(given):
    assert "newton" not in run(BADLY_SCALED, maxiter=60, **given).kinds

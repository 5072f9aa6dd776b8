"""Newton steps of sums of losses whose matrix is made of a product for each unknown."""

import numpy as np
import pytest
from scipy.special import expit

import ksdmin

M, N, L2 = 5000, 40, 1e-6


class Regression:
    """Logistic regression with features whose scales spread over some decades."""

    def __init__(self, decades):
        draw = np.random.default_rng(0)
        scale = np.logspace(-decades / 2, decades / 2, N)
        self.X = draw.standard_normal((M, N)) * scale
        scores = self.X @ (draw.standard_normal(N) / scale)
        self.y = np.where(scores + draw.standard_normal(M) > 0, 1.0, -1.0)

    def fun(self, w, idx=slice(None)):
        return np.logaddexp(0, -self.y[idx] * (self.X[idx] @ w)).mean() + L2 / 2 * w @ w

    def jac(self, w, idx=slice(None)):
        X, y = self.X[idx], self.y[idx]
        return -(y * expit(-y * (X @ w))) @ X / len(y) + L2 * w

    def hessp(self, w, p, idx=slice(None)):
        X, s = self.X[idx], expit(self.X[idx] @ w)
        return (s * (1 - s) * (X @ p)) @ X / len(s) + L2 * p

    def run(self, subsets=M, hessp=None, **options):
        return ksdmin.minimize(
            *(self.fun, np.zeros(N)),
            jac=self.jac,
            hessp=hessp,
            subsets=subsets,
            rng=0,
            options=options,
        )


BADLY_SCALED = Regression(6)


@pytest.mark.parametrize("hessp", [None, BADLY_SCALED.hessp], ids=["differences", "hessp"])
def test_badly_scaled_features_take_no_more_passes_than_without_samples(hessp):
    """They took 2,152 and 802, where the whole set takes 307 and 346."""
    res = BADLY_SCALED.run(hessp=hessp)
    assert res.success
    assert res.kinds["newton"] > 0
    assert res.history["passes"][-1] < 300
    assert np.abs(BADLY_SCALED.jac(res.x)).max() <= 1e-5


def test_well_scaled_features_need_no_matrix():
    assert "newton" not in Regression(0).run().kinds


@pytest.mark.parametrize(
    "given",
    [{"without": ["newton"]}, {"subsets": ksdmin.Subsets(M, curvature=300)}],
    ids=["switched off", "sizes of the user's"],
)
def test_there_is_none_where_the_user_says_so(given):
    assert "newton" not in BADLY_SCALED.run(maxiter=60, **given).kinds

"""Every snippet of docs/use_it_inside.md runs, and ends where the library's own method does.

Each in a process of its own: such libraries change defaults of each other.
"""

import re
import sys
from importlib.util import find_spec

import pytest

from tests.processes import ROOT, printed_by

SECTIONS = dict(
    re.findall(
        r"^## (.*?)\n.*?```python\n(.*?)```",
        (ROOT / "docs/use_it_inside.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
)
# The packages of a section, and what must hold after its code.
CHECKS = {
    "SciPy": (
        ["scipy"],
        """
assert res.success and abs(res.x - 1).max() < 1e-6
assert best.lowest_optimization_result.success
assert best.fun <= minimize(egg_box, [3.0, -2.0], **local).fun
""",
    ),
    "statsmodels": (
        ["statsmodels"],
        """
own = sm.NegativeBinomial(y, X).fit(disp=0)
assert fit.mle_retvals["converged"] and abs(fit.llf - own.llf) < 1e-4
assert abs(fit.bse / own.bse - 1).max() < 1e-3
assert arima.mle_retvals["converged"]
assert arima.llf > sm.tsa.ARIMA(series, order=(1, 1, 1)).fit().llf - 1e-3
orders = [(1, 1, 1), (2, 1, 2), (3, 0, 1), (1, 0, 0), (0, 1, 1), (2, 0, 2), (4, 1, 0), (1, 1, 2)]
for seed, order in enumerate(orders):
    rng = np.random.default_rng(seed % 3)
    series = np.cumsum(rng.standard_normal(400)) + rng.standard_normal(400)
    model = sm.tsa.ARIMA(series, order=order)
    ours = model.fit(
        method_kwargs={"method": "minimize", "min_method": ksd_without_jac, "disp": 0}
    )
    assert ours.mle_retvals["converged"] and ours.llf > model.fit().llf - 1e-3, order
""",
    ),
    "lmfit": (
        ["lmfit"],
        """
own = lmfit.minimize(residual, params, args=(x, y))
assert fit.success and abs(fit.params["rate"].value - own.params["rate"].value) < 1e-4
""",
    ),
    "optimagic": (
        ["optimagic"],
        """
assert res.success and abs(res.params["a"] - 0.5) < 1e-8  # at its bound
assert abs(res.params["b"]).max() < 1e-3 and res.n_fun_evals > 1
""",
    ),
    "PyMC": (
        ["pymc"],
        """
assert res.success and abs(best["w"] - [1, -2, 0.5]).max() < 0.1
""",
    ),
    "scikit-learn": (
        ["sklearn"],
        """
own = GaussianProcessRegressor(RBF() + WhiteKernel()).fit(X, y)
difference = gp.log_marginal_likelihood_value_ - own.log_marginal_likelihood_value_
assert difference > -1e-6
""",
    ),
    "GPyTorch": (
        ["gpytorch"],
        """
assert res.success and res.nhev > 0
assert abs(float(-mll(gp(X), y)) - res.fun) < 1e-9
assert 0.05 < gp.likelihood.noise.item() ** 0.5 < 0.2
""",
    ),
    "BoTorch": (
        ["botorch"],
        """
def likelihood(gp, mll):
    mll.train()
    return float(mll(gp(*gp.train_inputs), gp.train_targets))

own = SingleTaskGP(X, y)
own_mll = ExactMarginalLogLikelihood(own.likelihood, own)
fit_gpytorch_mll(own_mll)
assert likelihood(gp, mll) > likelihood(own, own_mll) - 1e-6
""",
    ),
    "Lightning": (
        ["lightning"],
        """
assert trainer.optimizers[0].last.iteration == 40
assert float(torch.nn.functional.mse_loss(net.net(X), torch.sin(3 * X)).detach()) < 5e-2
""",
    ),
    "DeepXDE": (
        ["deepxde"],
        """
x = np.linspace(-1, 1, 21)[:, None]
assert abs(model.predict(x) - np.sin(np.pi * x)).max() < 1e-4
""",
    ),
    "PINA": (
        ["pina"],
        """
x = torch.linspace(0, 1, 11)[:, None]
found = net(LabelTensor(x, ["x"])).tensor
assert float((found - torch.sin(torch.pi * x)).detach().abs().max()) < 1e-6
""",
    ),
}


def test_every_section_is_tested():
    assert list(SECTIONS) == list(CHECKS)


@pytest.mark.parametrize("section", CHECKS)
def test_links_lead_to_sections(section):
    table = (ROOT / "docs/use_it_inside.md").read_text().partition("\n## ")[0]
    assert f"[{section}](#{section.lower()})" in table


@pytest.mark.slow
@pytest.mark.parametrize("section", CHECKS)
def test_the_snippet_runs(section, tmp_path):
    packages, check = CHECKS[section]
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")
    command = [sys.executable, "-c", SECTIONS[section] + check]
    printed_by(command, tmp_path, DDE_BACKEND="pytorch")

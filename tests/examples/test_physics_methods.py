"""The methods of examples/physics: all of them lower the loss, and the rival is a good one."""

import pytest
import torch
from torch.nn.utils import vector_to_parameters

from examples.harness.net_training.point_recorder import PointRecorder
from examples.physics.experiments import EXPERIMENTS
from examples.physics.inverse_diffusion import BOUNDS
from examples.physics.methods import METHODS
from examples.physics.residual_jacobian import CHUNK_BYTES, ResidualJacobian
from examples.physics.run_config import Config
from examples.physics.training import Training, on_device
from examples.physics.training_run import perform

CPU = torch.device("cpu")
LIMITS = {"seconds": 60.0, "passes": 100.0, "small": True}  # no clock decides
# One of each kind: conditions in time, redrawn points, slabs, many dimensions.
FAST = ["wave", "burgers-redrawn", "kuramoto-sivashinsky", "poisson-5d"]
pytestmark = pytest.mark.filterwarnings(
    "ignore:.torch.jit.script. is deprecated",  # said by torch of its own forward mode
    "ignore:.*_maybe_evaluate_static:DeprecationWarning",
)


def small_setting(name):
    return on_device(EXPERIMENTS[name].make(0, True), CPU, torch.float64)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_lowers_the_loss(method):
    problem = "inverse-diffusion" if method == "lbfgsb" else "precision-fit"
    run = perform(Config(problem, method, 0, **LIMITS), CPU)
    trace = run["trace"]
    assert trace["loss"][-1] < 0.5 * trace["loss"][0]
    assert trace["iterations"][-1] > 0
    assert run["message"] == "The limit of passes has been reached."


@pytest.mark.parametrize(
    "problem", [pytest.param(p, marks=[pytest.mark.slow] * (p not in FAST)) for p in EXPERIMENTS]
)
def test_every_problem_is_a_run(problem):
    by_grad = problem.startswith(("helmholtz", "dispersive"))  # not under torch.func, as lm needs
    method, passes = ("ksd", 300.0) if by_grad else ("lm", 30.0)
    run = perform(Config(problem, method, 0, **LIMITS | {"passes": passes}), CPU)
    assert run["trace"]["loss"][-1] < 0.9 * run["trace"]["loss"][0]
    assert run["trace"]["passes"][-1] > 0
    axes = len(EXPERIMENTS[problem].make(0, True).domain)
    assert len(run.get("picture", ())) == {1: 201, 2: 41**2}.get(axes, 0)
    assert {"date", "commit", "hardware", "torch", "parameters"} <= set(run)


@pytest.mark.slow
def test_ksd_stays_within_the_bounds_and_so_does_levenberg_marquardt():
    for method in ("ksd", "lbfgsb", "lm"):
        setting = small_setting("inverse-diffusion")
        recorder = PointRecorder(60.0, passes=50.0)
        training = Training(setting, setting.problem(), recorder, 0)
        METHODS[method](training)
        for kept in recorder.kept:
            vector_to_parameters(torch.as_tensor(kept.x), setting.net.parameters())
            assert BOUNDS[0] <= float(setting.net.conductivity.detach()) <= BOUNDS[1]


@pytest.mark.parametrize("name", ["wave", "inverse-diffusion"])
def test_the_jacobian_is_that_of_the_loss(name, monkeypatch):
    setting = small_setting(name)
    problem = setting.problem()
    monkeypatch.setitem(CHUNK_BYTES, "cpu", 4 * 8 * len(problem.x0) * 70)  # several chunks
    jacobian, x = ResidualJacobian(setting), problem.x0 + 0.01
    r, J = map(torch.cat, zip(*[(a.clone(), b.clone()) for a, b in jacobian(x)], strict=True))
    assert J.shape == (jacobian.residuals, jacobian.parameters)
    value, g = problem.value_and_gradient(x)
    assert float(r @ r) == pytest.approx(value, rel=1e-12)
    torch.testing.assert_close(2 * J.T @ r, g, rtol=1e-9, atol=1e-11)
    v = torch.randn(len(x), generator=torch.Generator().manual_seed(0), dtype=x.dtype)
    torch.testing.assert_close(2 * J.T @ (J @ v), problem.curvature(x)(v), rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_levenberg_marquardt_finds_a_fit_that_is_exact():
    run = perform(Config("precision-fit", "lm", 0, **LIMITS | {"passes": 400.0}), CPU)
    assert run["trace"]["error"][-1] < 1e-5


@pytest.mark.cuda
def test_graphs_compute_the_same_on_cuda():
    gpu = torch.device("cuda")
    for name in ("wave", "inverse-diffusion"):
        on_cpu, on_gpu = small_setting(name), EXPERIMENTS[name].make(0, True)
        on_gpu = on_device(on_gpu, gpu, torch.float64)
        x = on_cpu.problem().x0
        for point in (x, x + 0.01):
            expected = [[part.clone() for part in rows] for rows in ResidualJacobian(on_cpu)(point)]
            jacobian = ResidualJacobian(on_gpu)
            found = [[part.cpu() for part in rows] for rows in jacobian(point.to(gpu))]
            torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)
            assert not any(block._rows._eager for block in jacobian._blocks)

"""The benchmarks of nets: they train, runs are kept one by one, and become lines of tables."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import ksdmin
from examples.benchmarks import nets_of_today
from examples.benchmarks.net_suite import experiments, samples, small_nets
from examples.data.splits import Part, Splits
from examples.harness.net_training.muon import Muon
from examples.harness.net_training.training import DeviceData

pytestmark = pytest.mark.usefixtures("one_thread")


def made_up_samples(name, count=12):
    """As the experiment has them, without its files."""
    rng = np.random.default_rng(0)
    if name == "causal":
        rows = rng.integers(0, samples.KINDS, (count, samples.LENGTH + 1))
        part = Part(rows[:, :-1], rows[:, 1:])
    else:
        pixels = rng.random((count, 784), dtype=np.float32)
        part = Part(pixels, pixels if name == "aside" else rng.integers(0, 10, count))
    return Splits(part, part, part)


@pytest.mark.parametrize("name", small_nets.NETS)
def test_every_small_net_classifies_images(name):
    torch.manual_seed(0)
    data = torch.rand(30, 784), torch.randint(0, 10, (30,))
    problem = ksdmin.from_torch(small_nets.NETS[name](), nn.CrossEntropyLoss(), data)
    everything = ksdmin.Subsets(30, 1.0, 1.0, 1.0, disjoint=False)
    res = ksdmin.minimize(problem, subsets=everything, options={"maxiter": 2})
    assert res.fun < problem.value(problem.x0)


@pytest.mark.parametrize("name", experiments.EXPERIMENTS)
def test_every_net_of_today_can_be_trained(name):
    data = DeviceData.of(made_up_samples(name), torch.device("cpu"))
    training = nets_of_today.training_of(name, 0, data)
    variables = training.parameters()
    x = nn.utils.parameters_to_vector(variables).detach().clone()
    before = nets_of_today.assess(training, x)
    outputs = training.net(data.train.inputs)
    loss = training.task.batch_loss(outputs, data.train.targets)
    gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, variables)])
    after = nets_of_today.assess(training, x - 1e-3 * gradient / gradient.norm())
    assert before["train"] == pytest.approx(loss.item(), rel=1e-5)
    assert after["train"] < before["train"] < before["value"]
    assert before["validation"] == before["train"]  # of the same samples


def test_muon_is_torchs_for_matrices():
    pytest.importorskip("torch", minversion="2.9")
    torch.manual_seed(0)
    start, bias = torch.randn(6, 4), torch.zeros(6)
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    update = Muon([ours, nn.Parameter(bias)], 0.1, None)
    optimizer = torch.optim.Muon([theirs], lr=0.1, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    for _ in range(5):
        slope = torch.randn(6, 4)
        update([slope, bias])
        theirs.grad = slope
        optimizer.step()
    torch.testing.assert_close(ours.data, theirs.data, rtol=0.02, atol=0.02)  # theirs: bfloat16


# --- The command line ---


@pytest.fixture
def small_images(monkeypatch):
    """The perceptron on made-up images; runs end by their passes, however slow the machine is."""
    small = experiments.EXPERIMENTS["perceptron"]
    changed = experiments.Experiment(small.title, small.net, lambda: made_up_samples("conv", 40))
    known = {**experiments.EXPERIMENTS, "perceptron": changed}
    monkeypatch.setattr(nets_of_today, "EXPERIMENTS", known)
    recorder = nets_of_today.PointRecorder
    monkeypatch.setattr(nets_of_today, "PointRecorder", lambda seconds: recorder(600.0, 10.0))


def run(path, *arguments):
    fixed = ["--out", str(path), "--device", "cpu", "--commit", "test"]
    nets_of_today.main(["run", "perceptron", *arguments, *fixed])
    return json.loads(path.read_text())


def test_runs_are_kept_and_become_tables(small_images, tmp_path, capsys):
    path = tmp_path / "runs.json"
    limits = ["--seconds", "0.3", "--samples", "30"]
    methods = ["--methods", "ksd", "adam", "--rates", "1e-3", "3e-4", *limits]
    runs = run(path, *methods)
    made = [(one["method"], one["rate"]) for one in runs]
    assert made == [("ksd", None), ("adam", 1e-3), ("adam", 3e-4)]
    for one in runs:
        assert (one["samples"], one["parameters"], one["commit"]) == (30, 535_818, "test")
        trace = one["trace"]
        assert trace["train"][-1] < trace["train"][0]
        assert trace["passes"][0] == 0 < trace["passes"][-1]
        assert {"value", "validation", "error"} <= trace.keys()
    assert run(path, *methods) == runs
    capsys.readouterr()
    nets_of_today.main(["table", str(path)])
    text = capsys.readouterr().out
    assert "**perceptron: a perceptron, digits; 535,818 parameters, 30 samples, 0.3 s, 1 s" in text
    assert "| adam, rate 0.001 |" in text

"""Closures of ksdmin.torch.KSD: compiled ones, and ones whose loss is random."""

import warnings

import numpy as np
import pytest
import torch
from scipy.optimize import OptimizeWarning
from torch import nn

import ksdmin.torch

X = torch.linspace(-1, 1, 90, dtype=torch.float64).reshape(30, 3)
Y = X.square().sum(1, keepdim=True)
compiles = pytest.mark.skipif(
    not hasattr(torch.compiler, "set_stance"), reason="torch before 2.6 cannot run it eagerly"
)


def net(*more):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 6), nn.Tanh(), *more, nn.Linear(6, 1)).double()


def losses(optimizer, closure, steps):
    return [float(optimizer.step(closure)) for _ in range(steps)]


@compiles
@pytest.mark.parametrize("what", ["model", "closure"])
def test_a_compiled_loss_is_differentiated_twice(what):
    """Eagerly: it is the same run as without torch.compile."""

    def run(compile):
        model = net()
        called = compile(model) if what == "model" else model
        optimizer = ksdmin.torch.KSD(called.parameters())

        def closure():
            return (called(X) - Y).square().mean()

        return losses(optimizer, compile(closure) if what == "closure" else closure, 3)

    assert run(lambda thing: torch.compile(thing, backend="aot_eager")) == run(lambda thing: thing)


@compiles
def test_a_compiled_loss_whose_closure_calls_backward_runs_compiled():
    calls = []

    def backend(graph, inputs):
        calls.append(graph)
        return graph.forward

    model = net()
    compiled = torch.compile(model, backend=backend)
    optimizer = ksdmin.torch.KSD(model.parameters())

    def closure():
        optimizer.zero_grad()
        loss = (compiled(X) - Y).square().mean()
        loss.backward()
        return loss

    found = losses(optimizer, closure, 4)
    assert calls
    assert found[-1] < found[0]


def with_dropout(model):
    return lambda: (model(X) - Y).square().mean()


def with_noise(model):
    rng = np.random.default_rng(0)
    return lambda: (model.eval()(X) - Y).square().mean() + 1e-2 * rng.random()


def with_backward(model):
    def closure():
        loss = (model(X) - Y).square().mean()
        loss.backward()
        return loss

    return closure


@pytest.mark.parametrize("make", [with_dropout, with_noise, with_backward])
def test_a_random_loss_is_said_to_be_one(make):
    model = net(nn.Dropout(0.5))
    optimizer, closure = ksdmin.torch.KSD(model.parameters()), make(model)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(40):
            optimizer.step(closure)
            if optimizer.status is not None:
                break
    messages = [str(one.message) for one in said if one.category is OptimizeWarning]
    assert len(messages) == 1  # once
    assert "the loss is random" in messages[0]
    assert "eval mode" in messages[0]


def test_a_closure_that_seeds_what_it_draws():
    model = net(nn.Dropout(0.5))

    def closure():
        torch.manual_seed(0)
        return (model(X) - Y).square().mean()

    found = losses(ksdmin.torch.KSD(model.parameters()), closure, 5)  # a warning is an error
    assert found[-1] < found[0]

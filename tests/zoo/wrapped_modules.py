"""Modules that something has been done to: parametrized, checkpointed, compiled, scripted."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

from tests.adapters.torch.zoo import Forward
from tests.versions import needs_torch
from tests.zoo.registry import Model, entry, real


def regression(model, **kwargs):
    return Model(model, nn.MSELoss(), (real(10, 3), real(10, 2)), **kwargs)


def between_layers(function):
    parts = {"first": nn.Linear(3, 4), "second": nn.Linear(4, 2)}
    return Forward(lambda m, x: m.second(function(m.first(x))), **parts)


COMPILED = "what torch.compile has made cannot be run eagerly"


@entry("torch")
def orthogonal_parametrization():
    layer = parametrizations.orthogonal(nn.Linear(3, 3), orthogonal_map="matrix_exp")
    return regression(nn.Sequential(layer, nn.Tanh(), nn.Linear(3, 2)))


@entry("torch")
def weight_norm_parametrization():
    return regression(
        nn.Sequential(parametrizations.weight_norm(nn.Linear(3, 4)), nn.Tanh(), nn.Linear(4, 2)),
        has_hessian=False,
    )


@entry("torch", pytest.mark.filterwarnings("ignore:.torch.nn.utils.weight_norm. is deprecated"))
def old_weight_norm():
    first = nn.utils.weight_norm(nn.Linear(3, 4).double())
    return regression(nn.Sequential(first, nn.Tanh(), nn.Linear(4, 2)), has_hessian=False)


class Positive(nn.Module):
    def forward(self, weight):
        return nn.functional.softplus(weight)


@entry("torch")
def parametrization_of_ones_own():
    layer = nn.Linear(3, 4)
    parametrize.register_parametrization(layer, "weight", Positive())
    return regression(nn.Sequential(layer, nn.Tanh(), nn.Linear(4, 2)))


def layers():
    return nn.Sequential(
        nn.Sequential(nn.Linear(3, 4), nn.Tanh()),
        nn.Sequential(nn.Linear(4, 3), nn.Tanh()),
        nn.Linear(3, 2),
    )


class Checkpointed(nn.Sequential):
    """Its activations are computed again in the backward pass."""

    def forward(self, x):
        for layer in self[:-1]:
            x = checkpoint(layer, x, use_reentrant=False)
        return self[-1](x)


@entry("torch")
def checkpointed():
    model = layers()
    return regression(Checkpointed(*model), plain=copy.deepcopy(model))


@entry("torch")
def compiled_ahead_of_time():
    needs_torch(2, 6, COMPILED)
    model = layers()
    return regression(torch.compile(model, backend="aot_eager"), plain=copy.deepcopy(model))


@entry("torch", pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated"))
def scripted_function_inside():
    @torch.jit.script
    def bend(x: torch.Tensor) -> torch.Tensor:
        return x.tanh() * x.sigmoid()

    return regression(between_layers(bend))


class Exponential(torch.autograd.Function):
    """The same in the form that torch.func takes, with vmap."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return torch.exp(-x.square())

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx, grad):
        x, output = ctx.saved_tensors
        return -2 * x * output * grad


@entry("torch")
def autograd_function_with_setup_context():
    return regression(between_layers(Exponential.apply))


@entry("torch")
def forward_hooks():
    model = layers()
    model[0].register_forward_hook(lambda module, args, out: 2 * out)
    model[1].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    return regression(model)

"""Derivatives of a model with any inputs and outputs, as dense matrices, by plain autograd."""

import torch
from torch.autograd.functional import hessian, jacobian
from torch.func import functional_call

from tests.adapters.torch.dense import assert_close, directions, multiply


def named(model, x):
    """The parameters of a flat vector."""
    parts, at = {}, 0
    for name, parameter in model.named_parameters():
        parts[name] = x[at : at + parameter.numel()].view(parameter.shape)
        at += parameter.numel()
    return parts


def call(model, x, *args, **kwargs):
    """What the model returns with other parameters."""
    return functional_call(model, named(model, x), args, kwargs)


def assert_derivatives(problem, x, losses, tolerance=1e-9):
    """Value, gradient and diagonal against those of x -> one loss per sample."""
    gradients = jacobian(losses, x)
    value, g, D = problem.value_and_gradient(x, diagonal=True)
    assert abs(value - losses(x).mean().item()) <= tolerance * abs(value)
    assert_close(g, gradients.mean(0), tolerance)
    assert_close(D, gradients.square().mean(0), tolerance)


def assert_product(problem, x, matrix, tolerance=1e-9):
    """The curvature against a matrix."""
    V = directions(x)
    assert_close(multiply(problem.curvature(x), V), matrix @ V, tolerance)


def exact_hessian(losses, x):
    return hessian(lambda x: losses(x).mean(), x)


def empirical_fisher(losses, x):
    gradients = jacobian(losses, x)
    return gradients.T @ gradients / len(gradients)


def gauss_newton(outputs, loss_hessian, x):
    """Of outputs x -> (N, K) and their Hessians (N, K, K) in the loss of each sample."""
    J = jacobian(outputs, x)
    return torch.einsum("nka,nkl,nlb->ab", J, loss_hessian, J) / len(J)


def output_hessians(losses, z):
    """The Hessian of each sample's loss in its outputs, (N, K, K)."""
    whole = hessian(lambda z: losses(z).sum(), z)
    return torch.stack([whole[i, :, i] for i in range(len(z))])

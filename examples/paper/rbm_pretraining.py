"""Pre-training of a net's layers as restricted Boltzmann machines (Hinton and Salakhutdinov 2006).

One step of contrastive divergence (CD-1): what the hidden units see in the data, less what they
see in a reconstruction of it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from examples.paper.table1_networks import linears

RATE, LINEAR_RATE = 0.1, 0.001  # the second one of linear hidden units
WEIGHT_COST = 2e-4
MOMENTUM, FIRST_MOMENTUM, FIRST_EPOCHS = 0.9, 0.5, 5
BATCH = 100
SPREAD = 0.1  # of the weights at the start
EPOCHS = 50


@torch.no_grad()
def pretrain(
    net: nn.Sequential, inputs: Tensor, seed: int, epochs: int = EPOCHS, code: int | None = None
) -> None:
    """Set the hidden layers of `net`, each trained on what the one before makes of the inputs.

    Of an auto-encoder `code` layers go down to the code, which is linear; the way up starts with
    the same weights and with the biases of what the machines see.
    """
    generator = torch.Generator(inputs.device).manual_seed(seed)
    layers = linears(net)
    for depth, layer in enumerate(layers[:-1] if code is None else layers[:code], start=1):
        linear = depth == code
        weights, visible_bias, hidden_bias = train_machine(
            inputs, layer.out_features, epochs, generator, linear
        )
        layer.weight.copy_(weights.T)
        layer.bias.copy_(hidden_bias)
        if code is not None:
            layers[-depth].weight.copy_(weights)
            layers[-depth].bias.copy_(visible_bias)
        inputs = torch.sigmoid(layer(inputs))


def train_machine(
    inputs: Tensor, hidden: int, epochs: int, generator: torch.Generator, linear: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """The weights (visible by hidden), and the biases of both sides, of one machine."""
    rate = LINEAR_RATE if linear else RATE
    visible = inputs.shape[1]
    weights = inputs.new_empty(visible, hidden).normal_(0, SPREAD, generator=generator)
    parameters = [weights, inputs.new_zeros(visible), inputs.new_zeros(hidden)]
    speeds = [torch.zeros_like(parameter) for parameter in parameters]
    for epoch in range(epochs):
        momentum = FIRST_MOMENTUM if epoch < FIRST_EPOCHS else MOMENTUM
        order = torch.randperm(len(inputs), generator=generator, device=inputs.device)
        for rows in order.split(BATCH):
            uphill = contrast(inputs[rows], *parameters, generator, linear)
            uphill[0].sub_(weights, alpha=WEIGHT_COST)
            torch._foreach_mul_(speeds, momentum)
            torch._foreach_add_(speeds, uphill, alpha=rate)
            torch._foreach_add_(parameters, speeds)
    return parameters[0], parameters[1], parameters[2]


def contrast(
    data: Tensor,
    weights: Tensor,
    visible_bias: Tensor,
    hidden_bias: Tensor,
    generator: torch.Generator,
    linear: bool = False,
) -> list[Tensor]:
    """CD-1: the means of the weights' and biases' statistics, data less reconstruction.

    Hidden units are binary, or linear with noise of unit variance.
    """
    squash = (lambda x: x) if linear else torch.sigmoid
    draw, device = torch.randn if linear else torch.rand, data.device
    seen = squash(torch.addmm(hidden_bias, data, weights))
    noise = draw(seen.shape, generator=generator, device=device)
    sampled = seen + noise if linear else (noise < seen).to(data.dtype)
    imagined = torch.sigmoid(torch.addmm(visible_bias, sampled, weights.T))
    seen_again = squash(torch.addmm(hidden_bias, imagined, weights))
    return [
        (data.T @ seen - imagined.T @ seen_again) / len(data),
        (data - imagined).mean(dim=0),
        (seen - seen_again).mean(dim=0),
    ]

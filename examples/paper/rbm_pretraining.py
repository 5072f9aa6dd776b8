"""Pre-training of a net's layers as restricted Boltzmann machines (Hinton and Salakhutdinov 2006).

One step of contrastive divergence (CD-1): what the hidden units see in the data, less what they
see in a reconstruction of it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from examples.paper.table1_networks import linears

RATE = 0.1
WEIGHT_COST = 2e-4
MOMENTUM, FIRST_MOMENTUM, FIRST_EPOCHS = 0.9, 0.5, 5
BATCH = 100
SPREAD = 0.1  # of the weights at the start
EPOCHS = 50


@torch.no_grad()
def pretrain(net: nn.Sequential, inputs: Tensor, seed: int, epochs: int = EPOCHS) -> None:
    """Set the hidden layers of `net`, each trained on what the one before makes of the inputs."""
    generator = torch.Generator(inputs.device).manual_seed(seed)
    for layer in linears(net)[:-1]:
        weights, hidden_bias = train_machine(inputs, layer.out_features, epochs, generator)
        layer.weight.copy_(weights.T)
        layer.bias.copy_(hidden_bias)
        inputs = torch.sigmoid(layer(inputs))


def train_machine(
    inputs: Tensor, hidden: int, epochs: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """The weights (visible by hidden) and the hidden biases of one machine."""
    visible = inputs.shape[1]
    weights = inputs.new_empty(visible, hidden).normal_(0, SPREAD, generator=generator)
    parameters = [weights, inputs.new_zeros(visible), inputs.new_zeros(hidden)]
    speeds = [torch.zeros_like(parameter) for parameter in parameters]
    for epoch in range(epochs):
        momentum = FIRST_MOMENTUM if epoch < FIRST_EPOCHS else MOMENTUM
        order = torch.randperm(len(inputs), generator=generator, device=inputs.device)
        for rows in order.split(BATCH):
            uphill = contrast(inputs[rows], *parameters, generator)
            uphill[0].sub_(weights, alpha=WEIGHT_COST)
            torch._foreach_mul_(speeds, momentum)
            torch._foreach_add_(speeds, uphill, alpha=RATE)
            torch._foreach_add_(parameters, speeds)
    return parameters[0], parameters[2]


def contrast(
    data: Tensor,
    weights: Tensor,
    visible_bias: Tensor,
    hidden_bias: Tensor,
    generator: torch.Generator,
) -> list[Tensor]:
    """CD-1: the means of the weights' and biases' statistics, data less reconstruction."""
    seen = torch.sigmoid(torch.addmm(hidden_bias, data, weights))
    on = torch.rand(seen.shape, generator=generator, device=seen.device) < seen
    imagined = torch.sigmoid(torch.addmm(visible_bias, on.to(data.dtype), weights.T))
    seen_again = torch.sigmoid(torch.addmm(hidden_bias, imagined, weights))
    return [
        (data.T @ seen - imagined.T @ seen_again) / len(data),
        (data - imagined).mean(dim=0),
        (seen - seen_again).mean(dim=0),
    ]

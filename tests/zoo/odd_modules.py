"""Modules that are not layer upon layer: tied, frozen, with buffers, lists, dictionaries, ..."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.zoo.registry import Model, entry, labels, real


@entry("torch")
def dropout_by_function_between_linear_layers():
    class Dropped(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 6), nn.Linear(6, 1)

        def forward(self, x):
            return self.second(F.dropout(self.first(x).tanh(), 0.4, self.training))

    return Model(Dropped(), nn.MSELoss(), (real(12, 3), real(12, 1)), draws=True)


@entry("torch")
def noise_on_the_weights():
    """Drawn with torch.randn_like: the same for the same samples."""

    class Noisy(nn.Linear):
        def forward(self, x):
            return F.linear(x, self.weight + 0.1 * torch.randn_like(self.weight), self.bias).tanh()

    return Model(Noisy(3, 2), nn.MSELoss(), (real(12, 3), real(12, 2)), draws=True)


@entry("torch")
def tied_weights():
    class Mirrored(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.decode = nn.Linear(4, 4), nn.Linear(4, 4)
            self.decode.weight = self.encode.weight

        def forward(self, x):
            return self.decode(self.encode(x).tanh())

    x = real(10, 4)
    return Model(Mirrored(), nn.MSELoss(), (x, x))


@entry("torch")
def frozen_layers():
    body = nn.Sequential(nn.Linear(3, 5), nn.Tanh()).requires_grad_(False)
    return Model(
        nn.Sequential(body, nn.Linear(5, 3), nn.Tanh(), nn.Linear(3, 2)),
        nn.CrossEntropyLoss(),
        (real(12, 3), labels(2, 12)),
    )


@entry("torch")
def layer_norm():
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 2))
    return Model(model, nn.MSELoss(), (real(10, 3), real(10, 2)))


@entry("torch")
def prelu_and_other_activations():
    layers = [nn.Linear(3, 4), nn.PReLU(4), nn.Linear(4, 4), nn.CELU(), nn.Linear(4, 4), nn.GLU()]
    more = [nn.Linear(2, 3), nn.Softsign(), nn.LogSigmoid(), nn.Tanhshrink(), nn.Linear(3, 1)]
    return Model(nn.Sequential(*layers, *more), nn.MSELoss(), (real(12, 3), real(12, 1)))


@entry("torch")
def parameter_list_and_dict():
    class Polynomial(nn.Module):
        def __init__(self):
            super().__init__()
            self.powers = nn.ParameterList(nn.Parameter(torch.randn(2)) for _ in range(3))
            self.scales = nn.ParameterDict(
                {"in": torch.ones(1), "out": nn.Parameter(torch.ones(2))}
            )

        def forward(self, x):
            x = x * self.scales["in"]
            total = sum(x**k * p for k, p in enumerate(self.powers))
            return total * self.scales["out"].exp()

    return Model(Polynomial(), nn.MSELoss(), (real(15, 1), real(15, 2)))


@entry("torch")
def module_list_in_a_loop():
    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))
            self.head = nn.ModuleDict({"mean": nn.Linear(3, 1), "unused": nn.Linear(3, 1)})

        def forward(self, x):
            for layer in self.layers:
                x = x + layer(x).tanh()
            return self.head["mean"](x)

    return Model(Loop(), nn.MSELoss(), (real(12, 3), real(12, 1)))


@entry("torch")
def complex_numbers_inside():
    """A filter in the Fourier domain; its parameters are real."""

    class Spectral(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(5, 2))

        def forward(self, signal):
            spectrum = torch.fft.rfft(signal) * torch.view_as_complex(self.weight)
            return torch.fft.irfft(spectrum, n=signal.shape[1]).tanh()

    return Model(Spectral(), nn.MSELoss(), (real(6, 8), real(6, 8)))

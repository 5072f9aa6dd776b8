"""Modules that are not layer upon layer: tied, frozen, with buffers, lists, dictionaries, ..."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.adapters.torch.zoo import Forward
from tests.zoo.registry import Model, entry, real


@entry("torch")
def noise_on_the_weights():
    """Drawn with torch.randn_like: the same for the same samples."""

    class Noisy(nn.Linear):
        def forward(self, x):
            return F.linear(x, self.weight + 0.1 * torch.randn_like(self.weight), self.bias).tanh()

    return Model(Noisy(3, 2), nn.MSELoss(), (real(12, 3), real(12, 2)), draws=True)


@entry("torch")
def mirrored():
    """An auto-encoder whose decoder is the encoder's weight, transposed, in no module."""
    model = Forward(
        lambda m, x: F.linear(m.encode(x).tanh(), m.encode.weight.t()), encode=nn.Linear(4, 2)
    )
    x = real(7, 4)
    return Model(model, nn.MSELoss(), (x, x))


@entry("torch")
def layers_with_repeated_samples():
    """A layer that sees each sample twice, and one whose rows are no samples."""
    model = Forward(
        lambda m, x: m.rows(m.twice(m.twice(x).tanh()).reshape(-1, 2)).reshape(len(x), -1),
        twice=nn.Linear(4, 4),
        rows=nn.Linear(2, 1),
    )
    return Model(model, nn.MSELoss(), (real(7, 4), real(7, 2)))


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
def complex_numbers_inside():
    """A filter in the Fourier domain; its parameters are real."""

    def spectral(m, signal):
        spectrum = torch.fft.rfft(signal) * torch.view_as_complex(m.weight)
        return torch.fft.irfft(spectrum, n=signal.shape[1]).tanh()

    model = Forward(spectral, weight=nn.Parameter(torch.randn(5, 2)))
    return Model(model, nn.MSELoss(), (real(6, 8), real(6, 8)))

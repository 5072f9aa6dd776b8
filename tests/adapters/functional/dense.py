"""The small network in torch, and its matrices, dense, as torch computes them."""

from functools import cached_property

import torch

from tests.adapters.functional.backends import parameters, samples

TORCH_LOSSES = {
    "squared-error": torch.nn.MSELoss(reduction="sum"),
    "softmax-cross-entropy": torch.nn.CrossEntropyLoss(reduction="sum"),
    "binary-cross-entropy": torch.nn.BCEWithLogitsLoss(reduction="sum"),
    "poisson": torch.nn.PoissonNLLLoss(reduction="sum"),
}


class Net(torch.nn.Module):
    """The same network; its flat vector has the same order."""

    def __init__(self, params):
        super().__init__()
        pieces = [torch.tensor(piece) for name in sorted(params) for piece in params[name]]
        self.pieces = torch.nn.ParameterList(pieces)

    def forward(self, X):
        pieces = list(self.pieces)
        *hidden, (W, b) = zip(pieces[::2], pieces[1::2], strict=True)
        for V, c in hidden:
            X = torch.tanh(X @ V + c)
        return X @ W + b


class Dense:
    """Every matrix of the network at its parameters, as a mean over `idx`."""

    def __init__(self, loss, idx=slice(None), l2=0.0):
        X, y = (torch.as_tensor(part[idx]) for part in samples(loss))
        self._net, self._X, self._y = Net(parameters()), X, y
        self._loss, self.l2, self.size = TORCH_LOSSES[loss], l2, len(X)
        self.x = torch.cat([p.detach().reshape(-1) for p in self._net.parameters()])

    def _outputs(self, x):
        named, at = {}, 0
        for name, p in self._net.named_parameters():
            named[name] = x[at : at + p.numel()].reshape(p.shape)
            at += p.numel()
        return torch.func.functional_call(self._net, named, (self._X,))

    def _losses(self, z):
        pairs = zip(z, self._y, strict=True)
        return torch.stack([self._loss(a[None], b[None]) for a, b in pairs])

    def _with_l2(self, matrix):
        return (matrix + self.l2 * torch.eye(len(self.x), dtype=torch.float64)).numpy()

    @cached_property
    def value(self):
        losses = self._losses(self._outputs(self.x))
        return float(losses.mean() + self.l2 / 2 * self.x @ self.x)

    @cached_property
    def gradients(self):
        """One row per sample."""
        return torch.func.jacrev(lambda x: self._losses(self._outputs(x)))(self.x)

    @property
    def gradient(self):
        return (self.gradients.mean(0) + self.l2 * self.x).numpy()

    @property
    def diagonal(self):
        return ((self.gradients**2).mean(0) + self.l2).numpy()

    def matrix(self, provider):
        if provider == "hessian":
            return self._with_l2(_hessian(lambda x: self._losses(self._outputs(x)).mean())(self.x))
        if provider == "empirical-fisher":
            return self._with_l2(self.gradients.T @ self.gradients / self.size)
        J = torch.func.jacrev(self._outputs)(self.x)
        z = self._outputs(self.x)
        total = torch.zeros(len(self.x), len(self.x), dtype=torch.float64)
        for i in range(self.size):
            H = _hessian(lambda a, i=i: self._loss(a[None], self._y[i][None]))(z[i])
            total += J[i].T @ H @ J[i]
        return self._with_l2(total / self.size)


def _hessian(f):
    return torch.func.jacrev(torch.func.jacrev(f))

"""Models that return their own loss: a mean over the batch, or one loss per sample."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ksdmin._adapters import curvature as _curvature
from ksdmin._adapters.curvature import SampleLoss
from ksdmin._adapters.torch.flat_model import FlatModel, flatten
from ksdmin._adapters.torch.kernels import Chunk, Forward, Kernels, Product
from ksdmin._adapters.torch.model_calls import chosen, description, field
from ksdmin._adapters.trees import tree_map

# Relative difference between the gradient and its part through the logits: more is no rounding,
# even in bfloat16.
MAX_LOGITS_DIFFERENCE = 1e-2


class OwnLosses:
    """Reads the loss that a model returns, as one loss per sample.

    Parameters
    ----------
    output : str, int, callable or None
        Where the loss is among the outputs; None: a tensor, or the field ``loss``.
    outputs : any
        The outputs for `rows` samples, which show what the loss is like.
    rows : int
        How many samples.
    model : str
        The name of the model.

    Attributes
    ----------
    is_scalar : bool
        Whether it is one number, the mean over a batch.
    """

    def __init__(self, output: Any, outputs: Any, rows: int, model: str) -> None:
        self._output = output
        loss = self._loss(outputs)
        if not isinstance(loss, Tensor) or not loss.is_floating_point():
            raise TypeError(
                f"{model} was given no loss=, and returned {description(outputs)}: expected a "
                "loss, as the field 'loss' of the outputs, or as what output= names. Give loss= "
                "and data=(inputs, targets), or give the model what it computes its loss from "
                "(labels)"
            )
        if loss.shape not in ((), (rows,), (rows, 1)):
            raise ValueError(
                f"{model} returned a loss of shape {tuple(loss.shape)} for {rows} samples: "
                f"expected their mean, a scalar, or one loss per sample, shape ({rows},). If it "
                "returns outputs rather than a loss, then loss= is missing"
            )
        self.is_scalar = loss.ndim == 0

    def _loss(self, outputs: Any) -> Any:
        if self._output is None:
            return outputs if isinstance(outputs, Tensor) else field(outputs, "loss")
        return chosen(outputs, self._output)

    def __call__(self, outputs: Any, rows: int) -> Tensor:
        """The losses; the mean of a batch stands for each of its samples."""
        loss: Tensor = self._loss(outputs)
        return loss.expand(rows) if loss.ndim == 0 else loss.reshape(loss.shape[0])


class OwnLossKernels(Kernels):
    """The computations for a model that returns its own loss.

    Parameters
    ----------
    model : FlatModel
        The model; its reader is `losses`.
    losses : OwnLosses
        Reads the losses.
    """

    def __init__(self, model: FlatModel, losses: OwnLosses) -> None:
        super().__init__(model, SampleLoss(_as_they_are), "hessian")
        self.is_scalar = losses.is_scalar
        self._through_logits = False

    def set_curvature(self, curvature: Any, probe: Chunk) -> None:
        """Use a provider, by default the best that there is; refuse one that there is not."""
        self._through_logits = self._depends_through_logits(probe)
        if curvature is None:
            curvature = "gauss-newton" if self._through_logits else "hessian"
        if curvature == "fisher":
            raise ValueError(
                "curvature='fisher' draws labels from the model's likelihood, which a loss that "
                "the model returns does not define: use 'hessian', or give loss= and targets"
            )
        needs_logits = curvature == "gauss-newton" or (
            curvature == "empirical-fisher" and self.is_scalar
        )
        if needs_logits and not self._through_logits:
            raise ValueError(
                f"curvature={curvature!r} needs the outputs that the model's own loss is computed "
                "from: no 'logits' among its outputs are all that its loss depends on. Use "
                "'hessian', or give loss= and targets"
            )
        self.curvature = curvature if isinstance(curvature, str) else ""

    def _depends_through_logits(self, probe: Chunk) -> bool:
        """Whether the gradient is that through the logits."""
        forward = self.forward(self.model.near_x0(), probe)
        parameters, z = forward.parameters, forward.logits
        if z is None:
            return False
        total = self.total_loss(forward.z, forward.targets, forward.w)
        (r,) = torch.autograd.grad(total, z, retain_graph=True, allow_unused=True)
        if r is None:
            return False
        part = torch.autograd.grad(z, parameters, r, retain_graph=True, allow_unused=True)
        whole = torch.autograd.grad(total, parameters, allow_unused=True)
        g = flatten(whole, self.model.shapes, self.model.x0)
        difference = g - flatten(part, self.model.shapes, self.model.x0)
        return bool(difference.norm() <= MAX_LOGITS_DIFFERENCE * g.norm())

    def forward(self, x: Tensor, chunk: Chunk) -> Forward:
        """A forward pass: the losses, and the logits in the same graph."""
        inputs, targets, w = chunk
        parameters = self.model.leaves(x)
        outputs = self.model.outputs(parameters, inputs)
        z = field(outputs, "logits")
        usable = isinstance(z, Tensor) and z.requires_grad and z.shape[:1] == (len(w),)
        losses = self.model.read(outputs, inputs)
        return Forward(parameters, losses, targets, w, z if usable else None)

    def _product(self, forward: Forward) -> Product:
        """The curvature: through the logits, as a part of one graph with the loss."""
        if self.curvature == "hessian" or not self._through_logits:
            return super()._product(forward)
        z = forward.logits
        assert z is not None
        total = self.total_loss(forward.z, forward.targets, forward.w)
        jvp, vjp = self.jacobian(z, forward.parameters)
        (r,) = torch.autograd.grad(total, z, create_graph=True)
        if self.curvature == "empirical-fisher":
            return _curvature.fisher(jvp, vjp, r.detach())
        if not r.requires_grad:  # a loss that is linear in the logits
            return torch.zeros_like
        return _curvature.gauss_newton(
            jvp,
            vjp,
            lambda u: torch.autograd.grad(
                r, z, u, retain_graph=True, allow_unused=True, materialize_grads=True
            )[0],
        )

    def single_losses(self, forward: Forward, inputs: Any) -> Iterable[Tensor]:
        """The weighted loss of each sample: of a batch of one where a batch has its mean only."""
        if not self.is_scalar:
            return super().single_losses(forward, inputs)
        w = forward.w
        rows = (tree_map(lambda part, i=i: part[i : i + 1], inputs) for i in range(len(w)))
        return [
            self.total_loss(self.model(forward.parameters, one), (), w[i : i + 1])
            for i, one in enumerate(rows)
        ]


def _as_they_are(losses: Tensor, targets: Any) -> Tensor:
    return losses

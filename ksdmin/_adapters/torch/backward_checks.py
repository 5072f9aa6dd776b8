"""Checks of a model's backward pass, on a few samples."""

from __future__ import annotations

import torch
from torch import Tensor

from ksdmin._adapters.torch.double_backward import (
    OF_THE_MODEL,
    OWN_PRODUCTS,
    RETAINED,
    MissingDerivative,
    contradicts,
    explained,
)
from ksdmin._adapters.torch.kernels import Chunk, Kernels
from ksdmin._adapters.torch.probing import Probing

# Relative difference between two numbers that are the same but for rounding, by precision.
_TOLERANCE = {"highest": 1e-4, "high": 1e-2, "bfloat16": 1e-1}
# The step of a difference of gradients, relative to the point: in float64 both the rounding error
# and the curvature of the gradient are far below the tolerance, and so is the chance of a kink.
_STEP = 1e-6
# Times a difference that comes by chance: one that does not.
MANY = 10.0
NO_GRAPH = (
    "A derivative within the model or the residuals needs create_graph=True: "
    "torch.autograd.grad(u.sum(), x, create_graph=True). (retain_graph=True would hide it, and "
    "the gradient would be wrong.)"
)
_MAX_DIFFERENCE = 1e-2


def check_gradients_found(probing: Probing) -> None:
    """Refuse parameters that the loss depends on, but that torch finds no gradient for."""
    kernels, model = probing.kernels, probing.kernels.model
    try:
        g = probing.gradients()
    except RuntimeError as error:
        if "second time" in str(error):  # the graph of a derivative in the model is gone
            error.add_note(NO_GRAPH)
        raise
    missing = [name for name, piece in zip(model.slices(), g, strict=True) if piece is None]
    if not missing:
        return
    moved, slices = probing.x.clone(), model.slices()
    for name in missing:
        moved[slices[name]] += _direction(moved[slices[name]], 3)
    with model.restored_randomness():
        there = kernels.value(moved, probing.chunk)[0]
    change = abs(float(there - probing.total.detach()))
    if change > _TOLERANCE[model.precision] * abs(float(there)):
        raise ValueError(
            f"the loss depends on {', '.join(map(repr, missing[:3]))}, but torch finds no gradient "
            "in it: a checkpoint needs use_reentrant=False; take away .detach(), .data or "
            "torch.no_grad(), or freeze the parameter with requires_grad_(False)"
        )


def check_inner_derivatives(probing: Probing) -> None:
    """Refuse a model with a derivative in it that autograd takes for a constant."""
    kernels, model = probing.kernels, probing.kernels.model

    def value_at(x: Tensor) -> float:
        with model.restored_randomness():
            return float(kernels.value(x, probing.chunk)[0])

    if contradicts(value_at, probing.x, float(probing.total.detach()), probing.gradient()):
        name = type(model.model).__name__
        raise ValueError(f"the gradient of {name} is not that of its values. {RETAINED}")


def reads_parameters_again(probing: Probing) -> bool:
    """Whether the backward pass reads parameters from the module, as activation checkpoints do.

    They compute the activations again, after the forward pass has given the module its own
    parameters back: the gradient is another one then, by more than it differs from time to time
    (that of a convolution does on a GPU).
    """
    model, gradients = probing.kernels.model, []
    for model.recomputes in (False, False, True):
        gradients.append(probing.gradient())
    first, again, held = gradients
    rounding = torch.finfo(first.dtype).eps * float(first.norm())
    chance = MANY * max(float((again - first).norm()), rounding)
    return not float((held - first).norm()) <= chance


def fault_of_products(probing: Probing) -> str | None:
    """Why curvature products would be wrong; None where they are right, or raise themselves.

    Either a torch.autograd.Function computes something in its backward pass that torch does not
    see, or torch itself is wrong (its weight_norm is). The first product says so, and not
    from_torch: who wants gradients only needs no products.
    """
    kernels = probing.kernels
    try:
        if kernels.curvature == "hessian":
            found = _fault_of_hessian(probing)
        else:
            found = _fault_of_jacobian(probing) if kernels.curvature else None
    except (MissingDerivative, NotImplementedError):  # the first product will say so
        return None
    return None if found is None else _wrong(kernels, found)


def _fault_of_jacobian(probing: Probing) -> str | None:
    """J v, from differentiating the backward pass, and J^T u, from the backward pass itself."""
    model, forward = probing.kernels.model, probing.forward
    v = _direction(probing.x, 1)
    with explained(OF_THE_MODEL):
        jvp, vjp = probing.kernels.jacobian(forward.z, forward.parameters)
        Jv = jvp(v)
        u = _direction(Jv, 2)
        here, there = float(u.flatten() @ Jv.flatten()), float(vjp(u) @ v)
    scale = max(float(u.norm() * Jv.norm()), abs(there))
    if abs(here - there) > _TOLERANCE[model.precision] * scale:
        return "products with the Jacobian and with its transpose disagree"
    return None


def _fault_of_hessian(probing: Probing) -> str | None:
    """The product is symmetric; in float64 also a difference of gradients."""
    kernels, model, x = probing.kernels, probing.kernels.model, probing.x
    u, v = _direction(x, 1), _direction(x, 2)
    product = kernels.product_over(probing.forward)
    Hu, Hv = product(u).clone(), product(v)
    scale = float(u.norm() * Hv.norm() + v.norm() * Hu.norm())
    if abs(float(u @ Hv - v @ Hu)) > _TOLERANCE[model.precision] * scale:
        return "the Hessian is not symmetric"
    if x.dtype == torch.float64 and not _is_slope(kernels, probing.chunk, x, u, Hu):
        return "products differ from differences of gradients"
    return None


def _is_slope(kernels: Kernels, probe: Chunk, x: Tensor, u: Tensor, Hu: Tensor) -> bool:
    step = _STEP * max(1.0, float(x.norm())) / float(u.norm())
    gradients = []
    for at in (x + step * u, x - step * u):
        with kernels.model.restored_randomness():
            gradients.append(kernels.gradient(at, probe)[1])
    slope = (gradients[0] - gradients[1]) / (2 * step)
    rounding = 1e-12 * float(gradients[0].norm()) / step
    return not float((slope - Hu).norm()) > _MAX_DIFFERENCE * float(slope.norm()) + rounding


def _direction(like: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(like.shape, generator=generator, dtype=like.dtype).to(like.device)


def _wrong(kernels: Kernels, what: str) -> str:
    advice = "" if kernels.curvature != "hessian" else "use curvature='gauss-newton', "
    return (
        f"second derivatives of {type(kernels.model.model).__name__} by torch are wrong: {what}. "
        "An autograd.Function in it may be once_differentiable, detach something in its backward "
        "pass, or keep a derivative that it computed in the forward pass; torch's own weight_norm "
        f"is wrong, too. Mend that, {advice}{OWN_PRODUCTS}"
    )

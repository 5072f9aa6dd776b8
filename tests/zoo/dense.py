"""Values, gradients and products with the Gauss-Newton matrix, by each library's own autodiff."""

from functools import cached_property

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


class TorchDense:
    """A torch entry at a point; on the CPU, whose kernels can all be differentiated twice."""

    def __init__(self, specimen, x):
        self._specimen, self._x = specimen, x

    def _objective(self, x):
        with sdpa_kernel(SDPBackend.MATH):
            return self._specimen.objective(x)

    def _outputs(self, x):
        with sdpa_kernel(SDPBackend.MATH):
            return self._specimen.outputs(x).reshape(-1)

    @cached_property
    def value_and_gradient(self):
        x = self._x.clone().requires_grad_()
        value = self._objective(x)
        return value.item(), torch.autograd.grad(value, x)[0].numpy()

    def gauss_newton(self, v):
        """J^T H_L J v, where H_L is the Hessian of the mean loss in all outputs."""
        Jv = torch.autograd.functional.jvp(self._outputs, self._x, v)[1]
        z = self._specimen.outputs(self._x).detach()
        u = torch.autograd.functional.hvp(
            lambda flat: self._specimen.mean_loss(flat.view(z.shape)), z.reshape(-1), Jv
        )[1]
        return torch.autograd.functional.vjp(self._outputs, self._x, u)[1]


class AutogradDense:
    """An entry of autograd; its tree is flattened in the order of sorted keys."""

    def __init__(self, specimen, x):
        self._specimen, self._x = specimen, x

    def _tree(self, x):
        return filled(self._specimen.params, x)[0]

    def _objective(self, x):
        return self._specimen.objective(self._tree(x))

    @cached_property
    def value_and_gradient(self):
        import autograd

        value, g = autograd.value_and_grad(self._objective)(self._x)
        return float(value), g

    def gauss_newton(self, v):
        import autograd
        from autograd.differential_operators import make_jvp_reversemode

        specimen = self._specimen
        shape = specimen.outputs(self._tree(self._x)).shape

        def outputs(x):
            return specimen.outputs(self._tree(x)).reshape(-1)

        transposed, z = autograd.make_vjp(outputs)(self._x)
        Jv = make_jvp_reversemode(outputs)(self._x)(v)
        loss = autograd.hessian_vector_product(lambda flat: specimen.mean_loss(flat.reshape(shape)))
        return transposed(loss(z, Jv))


def filled(tree, x):
    """A tree like `tree` with the entries of `x`, and those that are left."""
    if isinstance(tree, dict):
        parts = {}
        for key in sorted(tree):
            parts[key], x = filled(tree[key], x)
        return parts, x
    if isinstance(tree, (tuple, list)):
        parts = []
        for part in tree:
            part, x = filled(part, x)
            parts.append(part)
        return type(tree)(parts), x
    size = np.size(tree)
    return x[:size].reshape(np.shape(tree)), x[size:]


class JaxDense:
    """An entry of jax. Reverse over reverse, as a `custom_vjp` has no forward mode."""

    def __init__(self, specimen, x):
        from jax.flatten_util import ravel_pytree

        self._specimen, self._x = specimen, x
        _, self._tree = ravel_pytree(specimen.params)

    def _objective(self, x):
        return self._specimen.objective(self._tree(x))

    @cached_property
    def value_and_gradient(self):
        import jax

        value, g = jax.jit(jax.value_and_grad(self._objective))(self._x)
        return float(value), np.asarray(g)

    def gauss_newton(self, v):
        import jax

        specimen = self._specimen
        shape = jax.eval_shape(specimen.outputs, specimen.params).shape

        def outputs(x):
            return specimen.outputs(self._tree(x)).reshape(-1)

        @jax.jit
        def product(x):
            z, transposed = jax.vjp(outputs, x)
            (Jv,) = jax.vjp(lambda u: transposed(u)[0], z)[1](v)
            loss = jax.grad(lambda flat: specimen.mean_loss(flat.reshape(shape)))
            return transposed(jax.grad(lambda z: loss(z) @ Jv)(z))[0]

        return product(self._x)


DENSE = {"torch": TorchDense, "autograd": AutogradDense, "jax": JaxDense}

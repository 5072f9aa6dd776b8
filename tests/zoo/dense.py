"""Values, gradients and dense curvature of an entry, by each library's own autodiff."""

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

    @cached_property
    def hessian(self):
        return torch.autograd.functional.hessian(self._objective, self._x).numpy()

    @cached_property
    def gauss_newton(self):
        """J^T H_L J, where H_L is the Hessian of the mean loss in all outputs."""
        J = torch.autograd.functional.jacobian(self._outputs, self._x)
        z = self._specimen.outputs(self._x).detach()
        H_L = torch.autograd.functional.hessian(
            lambda flat: self._specimen.mean_loss(flat.view(z.shape)), z.reshape(-1)
        )
        return (J.T @ H_L @ J).numpy()


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

    @cached_property
    def hessian(self):
        import autograd

        return autograd.hessian(self._objective)(self._x)

    @cached_property
    def gauss_newton(self):
        import autograd

        specimen = self._specimen
        z = specimen.outputs(self._tree(self._x))
        J = autograd.jacobian(lambda x: specimen.outputs(self._tree(x)).reshape(-1))(self._x)
        loss = autograd.hessian(lambda flat: specimen.mean_loss(flat.reshape(z.shape)))
        return J.T @ loss(z.reshape(-1)) @ J


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

    @cached_property
    def hessian(self):
        import jax

        return np.asarray(jax.jit(jax.jacrev(jax.grad(self._objective)))(self._x))

    @cached_property
    def gauss_newton(self):
        import jax

        specimen = self._specimen
        shape = jax.eval_shape(specimen.outputs, specimen.params).shape

        def outputs(x):
            return specimen.outputs(self._tree(x)).reshape(-1)

        @jax.jit
        def matrix(x):
            loss = jax.hessian(lambda flat: specimen.mean_loss(flat.reshape(shape)))
            J = jax.jacrev(outputs)(x)
            return J.T @ loss(outputs(x)) @ J

        return np.asarray(matrix(self._x))


DENSE = {"torch": TorchDense, "autograd": AutogradDense, "jax": JaxDense}

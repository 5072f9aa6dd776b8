"""Functions written for autograd or jax as problems."""

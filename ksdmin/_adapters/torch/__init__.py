"""Torch modules as problems, on CPU and CUDA."""

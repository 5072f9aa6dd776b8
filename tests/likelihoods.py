"""Regressions with a likelihood: the negative log-likelihood of data, and its derivatives."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit


@dataclass
class Logistic:
    X: np.ndarray
    y: np.ndarray

    def fun(self, b):
        return float((np.logaddexp(0, self.X @ b) - self.y * (self.X @ b)).sum())

    def jac(self, b):
        return self.X.T @ (expit(self.X @ b) - self.y)

    def hess(self, b):
        return self.X.T @ ((expit(self.X @ b) * expit(-self.X @ b))[:, None] * self.X)


@dataclass
class Poisson:
    X: np.ndarray
    y: np.ndarray

    def fun(self, b):
        return float((np.exp(self.X @ b) - self.y * (self.X @ b)).sum())

    def jac(self, b):
        return self.X.T @ (np.exp(self.X @ b) - self.y)

    def hess(self, b):
        return self.X.T @ (np.exp(self.X @ b)[:, None] * self.X)

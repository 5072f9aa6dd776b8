"""Algorithm 1 of the paper, line by line: the Gauss-Newton matrix times a vector, in numpy.

A multi-layer perceptron without biases (a layer's bias is a column of W that multiplies a constant
1 in v). Everything is for one sample; over many, the products are added.
"""

import numpy as np


def multiply_g(W, W_1, x, phi, dphi, error_hessian):
    """MultiplyG(theta, theta_1, x, y): the product G theta_1.

    Line 1: theta is the list `W` of the layers' weights, the direction theta_1 the list `W_1`.

    Parameters
    ----------
    W, W_1 : list of L matrices
        The weights, and the vector to multiply.
    x : vector
        The input of one sample.
    phi, dphi : list of L functions
        The nonlinearities of the layers, and their derivatives.
    error_hessian : callable
        v -> the matrix of second derivatives of the error in the output v (which knows y).
    """
    L = len(W)
    v, v_1, h = [x], [np.zeros_like(x)], [None]  # lines 2 and 3
    for i in range(1, L + 1):  # line 4; layer i has the weights W[i - 1]
        h.append(W[i - 1] @ v[i - 1])  # line 5
        h_1 = W[i - 1] @ v_1[i - 1] + W_1[i - 1] @ v[i - 1]  # line 6
        v.append(phi[i - 1](h[i]))  # line 7
        v_1.append(dphi[i - 1](h[i]) * h_1)  # line 8
    v_hat_2 = error_hessian(v[L]) @ v_1[L]  # line 10
    W_hat_2 = [np.zeros_like(weights) for weights in W]
    for i in range(L, 0, -1):  # line 11
        h_hat_2 = v_hat_2 * dphi[i - 1](h[i])  # line 12
        v_hat_2 = W[i - 1].T @ h_hat_2  # line 13
        W_hat_2[i - 1] = np.outer(h_hat_2, v[i - 1])  # line 14
    return W_hat_2  # line 16


def unit(v):
    """The Hessian of a squared error, |v - y|^2 / 2."""
    return np.eye(len(v))


def of_cross_entropy(v):
    """The Hessian of the negated cross-entropy, softmax included: diag(p) - p p^T."""
    p = np.exp(v - v.max())
    p /= p.sum()
    return np.diag(p) - np.outer(p, p)


def of_logistic(v):
    """The Hessian of the cross-entropy of sigmoids: diag(p (1 - p))."""
    p = 1 / (1 + np.exp(-v))
    return np.diag(p * (1 - p))

"""
5. Curve fitting: least squares with standard errors
====================================================

A sum of squared residuals has a curvature for free, :math:`J^T J`, from the Jacobian of the
residuals. The example is Thurber's, one of the harder ones in the National Institute of Standards
and Technology's collection (StRD): 37 measurements of the mobility of electrons in
semiconductors, a rational function with 7 parameters, and certified values to compare with.
"""

import matplotlib.pyplot as plt
import numpy as np
import scipy.optimize

import ksdmin

mobility = """
    80.574 84.248 87.264 87.195 89.076 89.608 89.868 90.101 92.405 95.854 100.696 101.060 401.672
    390.724 567.534 635.316 733.054 759.087 894.206 990.785 1090.109 1080.914 1122.643 1178.351
    1260.531 1273.514 1288.339 1327.543 1353.863 1414.509 1425.208 1421.384 1442.962 1464.350
    1468.705 1447.894 1457.628
"""
log_density = """
    -3.067 -2.981 -2.921 -2.912 -2.840 -2.797 -2.702 -2.699 -2.633 -2.481 -2.363 -2.322 -1.501
    -1.460 -1.274 -1.212 -1.100 -1.046 -0.915 -0.714 -0.566 -0.545 -0.400 -0.309 -0.109 -0.103
    0.010 0.119 0.377 0.790 0.963 1.006 1.115 1.572 1.841 2.047 2.200
"""
mobility, log_density = (np.array(text.split(), float) for text in (mobility, log_density))
CERTIFIED = """
    1288.1396800 1491.0792535 583.23836877 75.416644291 0.96629502864 0.39797285797 0.049727297349
"""
CERTIFIED = np.array(CERTIFIED.split(), float)
START = np.array([1000, 1000, 400, 40, 0.7, 0.3, 0.03])

# %%
# Residuals and their Jacobian
# ----------------------------

powers = log_density[:, None] ** np.arange(4)


def residuals(b):
    return powers @ b[:4] / (1 + powers[:, 1:] @ b[4:]) - mobility


def jacobian(b):
    below = 1 + powers[:, 1:] @ b[4:]
    above = powers @ b[:4]
    return np.hstack([powers / below[:, None], -powers[:, 1:] * (above / below**2)[:, None]])


# %%
# The fit, with standard errors
# -----------------------------
# ``ksdmin.curve_fit`` is called as SciPy's is, and returns what it returns.


def model(x, *b):
    p = x[:, None] ** np.arange(4)
    return p @ b[:4] / (1 + p[:, 1:] @ b[4:])


fits = {"ksdmin": ksdmin.curve_fit, "SciPy": scipy.optimize.curve_fit}
for name, curve_fit in fits.items():
    b, covariance, info, _, _ = curve_fit(
        model,
        log_density,
        mobility,
        p0=START,
        jac=lambda x, *b: jacobian(np.array(b)),
        full_output=True,
    )
    digits = -np.log10(np.abs(b / CERTIFIED - 1).max())
    print(f"{name:7} {digits:4.1f} digits, {info['nfev']} evaluations")
    for value, error in zip(b, np.sqrt(np.diag(covariance)), strict=True):
        print(f"    {value:12.6g} +- {error:.2g}")

# %%
# If lmfit is installed, it finds the same errors:

try:
    import lmfit
except ImportError:
    print("lmfit is not installed")
else:
    named = lmfit.create_params(**{f"b{i}": value for i, value in enumerate(START)})
    print(
        lmfit.minimize(lambda p: residuals(np.array(list(p.valuesdict().values()))), named).params
    )

# %%
# ``least_squares`` takes the residuals themselves, and returns the run as well.

res = ksdmin.least_squares(residuals, START, jacobian)
res

# %%
# As part of something larger
# ---------------------------
# Where a sum of squares is part of another function, ``minimize`` takes the Gauss-Newton matrix
# :math:`J^T J` as ``hess``: any symmetric matrix that gives the curvature well enough. The diagonal
# of it, as ``precond``, evens out parameters that differ by factors of ten thousand.


def fun(b):
    return 0.5 * np.sum(residuals(b) ** 2)


def jac(b):
    return jacobian(b).T @ residuals(b)


def hess(b):
    J = jacobian(b)
    return J.T @ J


def precond(b):
    return np.sum(jacobian(b) ** 2, axis=0)


larger = ksdmin.minimize(fun, START, jac=jac, hess=hess, precond=precond, options={"gtol": 1e-4})
print(np.abs(larger.x / res.x - 1).max())

# %%

grid = np.linspace(-3.1, 2.3, 300)
curves = {"start": (START, "grey"), "fitted": (res.x, "C0")}
figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
axes.plot(log_density, mobility, "o", markersize=4, color="black", label="measured")
for name, (b, colour) in curves.items():
    g = grid[:, None] ** np.arange(4)
    style = "--" if name == "start" else "-"
    axes.plot(grid, g @ b[:4] / (1 + g[:, 1:] @ b[4:]), style, color=colour, label=name)
axes.set(
    title="Thurber's semiconductor data",
    xlabel="log of the electron density",
    ylabel="electron mobility",
    ylim=(-100, 1700),
)
axes.legend()

# %%
# Bounds
# ------
# With ``bounds`` nothing is evaluated outside the box:

upper = np.array([np.inf] * 6 + [0.045])
res = ksdmin.least_squares(residuals, START, jacobian, bounds=(-np.inf, upper))
print(res.x.round(4), res.active_mask, res.message)
plt.show()

"""The methods, with their own default options but without limits that are theirs alone.

All share one budget of work and time, which the recorder enforces; so every method's own limit on
iterations and evaluations is raised out of the way. The trust-region methods stop at a gradient of
1e-4 by default, short of the target of this benchmark: they are given its 1e-5. Others stop when
values or steps change little, often short of the target too; "-tight" is a method whose tolerance
of this kind is out of the way, so that it is judged by what it can do and not by when it stops.
"""

from __future__ import annotations

import scipy.optimize

import ksdmin
from examples.benchmarks.comparison.counted_functions import CountedFunctions

FAR = 10**7
TRUST = {"maxiter": FAR, "gtol": 1e-5}
OPTIONS = {
    "BFGS": {"maxiter": FAR},
    "CG": {"maxiter": FAR},
    "L-BFGS-B": {"maxiter": FAR, "maxfun": FAR},
    "Newton-CG": {"maxiter": FAR},
    "TNC": {"maxfun": FAR},
    "SLSQP": {"maxiter": FAR},
    "trust-ncg": TRUST,
    "trust-krylov": TRUST,
    "trust-exact": TRUST,
    "trust-constr": {"maxiter": FAR},
}
TIGHT = {
    "L-BFGS-B-tight": {"ftol": 0.0},
    "Newton-CG-tight": {"xtol": 1e-12},
    "SLSQP-tight": {"ftol": 1e-14},
}
OPTIONS |= {name: OPTIONS[name.removesuffix("-tight")] | more for name, more in TIGHT.items()}
PRODUCTS = {"Newton-CG", "trust-ncg", "trust-krylov", "trust-constr"}  # these take hessp
KSD = ("ksd", "ksd-gradients", "ksd-paper")
UNCONSTRAINED = (*KSD, *(name for name in OPTIONS if name != "trust-constr"))
BOUNDED = (
    *("ksd", "ksd-gradients", "L-BFGS-B", "TNC", "SLSQP", "trust-constr"),
    *("L-BFGS-B-tight", "SLSQP-tight"),
)
LABELS = {
    "ksd-gradients": "ksd, gradients only",
    "ksd-paper": "ksd, PAPER",
    "L-BFGS-B-tight": "L-BFGS-B, ftol=0",
    "Newton-CG-tight": "Newton-CG, xtol=1e-12",
    "SLSQP-tight": "SLSQP, ftol=1e-14",
}
# Curves that are still legible: of a method that comes in two versions, the one that goes on.
PROFILED = (
    *("ksd", "ksd-gradients", "BFGS", "CG", "L-BFGS-B-tight", "Newton-CG-tight", "TNC"),
    *("SLSQP-tight", "trust-ncg", "trust-krylov", "trust-constr"),
)


def applicable(method: str, collection: str) -> bool:
    """Methods that store or factorise an n by n matrix are left out where n is large."""
    if collection == "s2mpj-bounds":
        return method in BOUNDED
    matrix = {"BFGS", "SLSQP", "SLSQP-tight", "trust-exact"}
    return collection != "classic-large" or method not in matrix


def run(method: str, counted: CountedFunctions, options: dict):
    problem = counted.problem
    box = None
    if problem.lower is not None:
        box = scipy.optimize.Bounds(problem.lower, problem.upper)
    common = {"jac": counted.jac, "bounds": box}
    if method in KSD:
        return run_ksd(method, counted, options, common)
    options = OPTIONS[method] | options
    method = method.removesuffix("-tight")
    if method in PRODUCTS:
        common["hessp"] = counted.hessp
    elif method == "trust-exact":
        common["hess"] = counted.hess
    return scipy.optimize.minimize(
        counted.fun, problem.x0, method=method, options=options, **common
    )


def run_ksd(method: str, counted: CountedFunctions, options: dict, common: dict):
    if method != "ksd-gradients":
        common["hessp"] = counted.hessp
    options = {"maxiter": FAR} | (ksdmin.PAPER | options if method == "ksd-paper" else options)
    return ksdmin.minimize(counted.fun, counted.problem.x0, options=options, **common)

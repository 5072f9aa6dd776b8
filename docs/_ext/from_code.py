"""Options, statuses and presets as tables, from the code that defines them."""

from dataclasses import fields, replace
from unittest.mock import patch

import numpy as np
from numpydoc.docscrape import ClassDoc
from tables import markdown, warn

import ksdmin
from ksdmin._ksd.presets import AS_PRINTED, DEFAULT, PRESETS, SET
from ksdmin._result import MESSAGES

WHEN = {
    "maxiter": "A run should end sooner; or, with status 1, later.",
    "maxfun": "An evaluation is expensive and there is a budget of them.",
    "maxtime": "There is a budget of seconds, as in training a net.",
    "gtol": "The first option to look at: the scale of the gradient is far from one, or you want "
    "another accuracy.",
    "gtol_rel": "The scale of the gradient is unknown, or far from one: for example 1e-6, with "
    "`gtol=0`.",
    "ftol": "A value that no longer falls is good enough, as by default in L-BFGS-B.",
    "xtol": "A point that no longer moves is good enough.",
    "krylov_dim": "Badly conditioned nets gain by more (the paper used 80 for CURVES). If "
    "memory is short, take less: the basis has this many vectors of length n.",
    "memory": "Rarely. 0 uses no previous directions; the paper has 1.",
    "memory_budget": "The basis does not fit beside the rest. "
    "[How it works](../how.md) has the bytes for K and n.",
    "pairs": "`0` if memory is short, or if many iterations with a small `dim` in the history make "
    "little progress.",
    "floor": "Rarely. Larger if products are noisy.",
    "diagonal_power": "Rarely. 1 trusts the diagonal most, 0 not at all.",
    "damping": "A net ends at a poor error that depends on the seed: try ten times more. `0` turns "
    "it off.",
    "inner_maxiter": "The search takes most of the time (see `inner_iterations` in the history); "
    "the paper used 30.",
    "disp": "You want SciPy's summary printed.",
    "progress": "You want to watch: a bar in the terminal, a widget in a notebook.",
    "return_all": "You want every iterate. Memory: n numbers an iteration.",
    "fmin": "A value is good enough, and known.",
    "validation": "The value on other samples is what counts.",
    "patience": "A run should end when it begins to overfit.",
    "average": "Nets on samples: the average often has a slightly smaller error than the last "
    "iterate. Try 0.9.",
    "history": "Tens of thousands of iterations.",
    "checkpoint": "A run takes longer than you trust the machine. "
    "[Long runs](../long_runs.md) shows how it goes on.",
    "checkpoint_every": "The file is large and the disk slow: less often. Iterations are "
    "expensive: `1`, after each.",
    "preset": "You want to compare with the algorithm of the paper.",
    "without": "You want to see what a rule does on your problem.",
}

WHAT_TO_DO = {
    "CONVERGED": "Nothing. The gradient test (`gtol`, or `gtol_rel`) holds at `res.x`, over all "
    "samples; the message names the test, with its numbers.",
    "FTOL": "Nothing, if that is what you want: the value hardly falls any more, as the option "
    "`ftol` asked. The gradient may still be large; the message has it.",
    "XTOL": "The same for the step, as the option `xtol` asked.",
    "MAXITER": "Raise `maxiter` if the gradient in `res.history` still falls. If it has stopped "
    "falling, the problem may need another formulation.",
    "PRECISION_LOSS": "Often nothing: compare `res.jac` with the rounding of `fun`. "
    "Otherwise check the gradient (`scipy.optimize.check_grad`), use float64, or subtract a large "
    "constant from `fun`.",
    "NOT_FINITE": "`fun`, `jac` or a product is NaN or infinite at the start or everywhere nearby. "
    "`res.x` is the best point with a finite value.",
    "MAXFUN": "Raise `maxfun`.",
    "MAXTIME": "Raise `maxtime`; `res.x` is the best point so far.",
    "UNBOUNDED": "Check the sign of `fun`; add a penalty or bounds.",
    "OUT_OF_SETS": "Give an iterable that holds more sets, or a callable.",
    "INTERRUPTED": "You pressed Ctrl-C. With the option `checkpoint`, `ksdmin.resume` goes on; "
    "without, start again from `res.x`.",
    "FAILED": "Your function raised. The exception carries the result as `exc.ksdmin_result`.",
    "RUNNING": "Nothing: you asked a `Solver` for its result before the end. Go on iterating.",
    "TARGET": "Nothing: `res.fun` is at most `fmin`.",
    "VALIDATION": "Take `res.validation.x`.",
    "CALLBACK": "Your callback ended the run.",
}

BUYS = {
    "without": "Fewer products early on, where no accurate step is needed; any accuracy, as sets "
    "grow; as wide a space as the samples support.",
    "spectrum": "Negative curvature keeps its scale; the paper's floor turns it into a long step.",
    "stop_inner_search": "Fewer evaluations: the search ends when the next iteration would gain "
    "little, or in a sum less than its share of the step's cost.",
    "accepts": "The value on A never rises by more than rounding.",
    "fewest": "A linear model with few samples is not sampled: Newton steps are cheap there.",
    "per_root": "With many samples, a few of them are enough for the first steps.",
    "compares": "Where A is a part, steps are judged on samples that the gradient has not seen.",
    "tilted": "The search on C keeps the slope of A: it does not undo what the gradient says.",
    "first_direction": "One product less in the first iteration.",
    "drifting": "If a regression fits its samples better and better, old pairs do not keep steps "
    "short.",
    "krylov_dim": "More if every set has all samples, for nets with many samples, and if the space "
    "limits the steps.",
    "memory": "Steps that the last iterations found useful stay within reach.",
    "pairs": "What has been learnt of the curvature carries over to the next iteration.",
    "floor": "Small eigenvalues count where they are measured accurately.",
    "diagonal_power": "A diagonal of squared gradients is not taken for the Hessian's; layers of a "
    "net have Kronecker factors.",
    "damping": "A net's first steps do not run far for next to nothing.",
}


def checked(texts, names, where):
    """The texts; a warning for every name that has none, or is gone."""
    for name in sorted(set(names) ^ set(texts)):
        warn(f"docs/_ext/from_code.py: {where} and the code do not agree on {name!r}")
    return texts


def options():
    """ksdmin.Options: its docstring, its defaults, and when to touch."""
    described = {p.name: p for p in ClassDoc(ksdmin.Options)["Attributes"]}
    known = {field.name: field.default for field in fields(ksdmin.Options)}
    checked(WHEN, known, "WHEN")
    parts = []
    for name, default in known.items():
        meaning = " ".join(described[name].desc)
        parts.append(
            f"`{name}` = `{default}`\n: {meaning}\n\n  *When to touch:* {WHEN.get(name, '')}\n"
        )
    return "\n".join(parts)


def statuses():
    """The table of ksdmin.Status."""
    checked(WHAT_TO_DO, [status.name for status in ksdmin.Status], "WHAT_TO_DO")
    rows = [
        [int(status), f"`{status.name}`", MESSAGES[status], WHAT_TO_DO.get(status.name, "")]
        for status in ksdmin.Status
    ]
    return markdown(["code", "name", "message", "what to do"], rows)


def presets():
    """Where PAPER and the default differ."""
    names = [field.name for field in fields(DEFAULT) if field.name != "name"]
    differing = [name for name in names if getattr(AS_PRINTED, name) != getattr(DEFAULT, name)]
    checked(BUYS, differing, "BUYS")
    rows = []
    for name in differing:
        paper, ours = (in_words(name, getattr(preset, name)) for preset in (AS_PRINTED, DEFAULT))
        rows.append([f"`{name}`" if name in SET else name, paper, ours, BUYS.get(name, "")])
    return markdown(["what", "`PAPER`", "default", "what the default buys"], rows)


def in_words(name, choice):
    """One choice of a preset, in the words of its docstring."""
    if isinstance(choice, frozenset):
        return ", ".join(sorted(choice)) or "no rule"
    if isinstance(choice, bool):
        return "yes" if choice else "no"
    if isinstance(choice, (int, float)):
        return f"`{choice:g}`"
    if choice is None:
        return "by the problem" if name in SET else "no limit"
    doc = choice.__doc__ or type(choice).__doc__
    return doc.splitlines()[0].removeprefix("The paper: ").rstrip(".")


def ablation():
    """The default with one choice of the paper's at a time, measured now on two problems."""
    rows = []
    for name, (preset, options) in variants().items():
        with patch.dict(PRESETS, default=preset):
            passes, norm = digits(options)
            work, reached = valley(options)
        rows.append(
            [name, f"{passes:.0f} {'' if norm <= GTOL else f'({norm:.0e})'}", work, reached]
        )
    header = ["run", "digits: passes", "valley: work", "valley: success"]
    return markdown(header, rows)


GTOL = 1e-6
NOT_ALONE = {"name", "without", "first_direction", *SET}


def variants():
    """Name: (what stands in for the default preset, options)."""
    runs = {"default": (DEFAULT, {})}
    for rule in sorted(AS_PRINTED.without):
        runs[f"default, without the rule {rule}"] = DEFAULT, {"without": [rule]}
    for name in [field.name for field in fields(DEFAULT) if field.name not in NOT_ALONE]:
        changed = replace(DEFAULT, **{name: getattr(AS_PRINTED, name)})
        if changed != DEFAULT:
            runs[f"default, but {name} as in the paper"] = changed, {}
    runs["default, without pairs"] = DEFAULT, {"pairs": 0}
    runs["PAPER"] = DEFAULT, dict(ksdmin.PAPER)
    return runs


def digits(options):
    """Passes of softmax regression on digits, and the gradient it ended with."""
    from scipy.special import log_softmax, softmax
    from sklearn.datasets import load_digits

    X, labels = load_digits(return_X_y=True)
    X, Y, l2 = np.c_[X / 16, np.ones(len(X))], np.eye(10)[labels], 1e-4
    shape = (X.shape[1], 10)

    def fun(w, idx):
        likelihood = (Y[idx] * log_softmax(X[idx] @ w.reshape(shape), axis=1)).sum(axis=1)
        return -likelihood.mean() + l2 / 2 * (w @ w)

    def jac(w, idx):
        P = softmax(X[idx] @ w.reshape(shape), axis=1)
        return (X[idx].T @ (P - Y[idx])).ravel() / len(P) + l2 * w

    def hessp(w, p, idx):
        P = softmax(X[idx] @ w.reshape(shape), axis=1)
        R = P * (X[idx] @ p.reshape(shape))
        return (X[idx].T @ (R - P * R.sum(axis=1, keepdims=True))).ravel() / len(P) + l2 * p

    res = ksdmin.minimize(
        fun,
        np.zeros(shape[0] * shape[1]),
        jac=jac,
        hessp=hessp,
        subsets=ksdmin.Subsets(len(X), curvature=1 / 20, search=1 / 20),
        rng=0,
        options={**options, "gtol": GTOL, "maxiter": 100},
    )
    return res.passes, np.abs(res.jac).max()


def valley(options):
    """Work on Rosenbrock's function of 20 variables, and whether it got there."""
    from scipy.optimize import rosen, rosen_der, rosen_hess_prod

    res = ksdmin.minimize(
        rosen,
        np.tile([-1.2, 1.0], 10),
        jac=rosen_der,
        hessp=rosen_hess_prod,
        options={**options, "gtol": GTOL, "maxiter": 1000},
    )
    return res.nfev + res.njev + 2 * res.nhev, "yes" if res.success else "no"

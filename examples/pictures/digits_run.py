"""A sum of losses: KSD and L-BFGS-B on the digits of examples/quickstart.py."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from examples.harness.provenance import package_commit, provenance
from examples.pictures.curve_picture import STATIC, Curve, Picture

RESULTS = STATIC / "sum-of-losses.json"
REPEATS = 3  # the run of the least seconds counts, as other programs use the machine


def measure() -> None:
    """Run both from the same start; values are above the minimum."""
    from threadpoolctl import threadpool_limits

    from examples import quickstart

    x0 = np.zeros(quickstart.X.shape[1] * quickstart.Y.shape[1])
    with threadpool_limits(limits=1):
        runs = {"KSD": _best(quickstart.run_ksd, x0), "L-BFGS-B": _best(quickstart.run_lbfgsb, x0)}
        least = quickstart.minimum(min((r[0] for r in runs.values()), key=lambda r: r.fun).x)
    report = {
        **provenance("numpy", commit=package_commit()),
        "script": "examples/quickstart.py",
        "samples": quickstart.N,
        "unknowns": x0.size,
        "gtol": quickstart.GTOL,
        "runs": {name: _columns(run, least) for name, run in runs.items()},
    }
    report["runs"]["KSD"] |= _sets(runs["KSD"][0])
    RESULTS.write_text(json.dumps(report) + "\n")


def _best(run: Any, x0: np.ndarray) -> Any:
    return min((run(x0) for _ in range(REPEATS)), key=lambda found: found[3][-1])


def _columns(run: Any, least: float) -> dict[str, Any]:
    res, passes, values, seconds = run
    return {
        "success": bool(res.success),
        "passes": [round(float(p), 2) for p in passes],
        "gap": [float(f"{max(v - least, 0):.4g}") for v in values],
        "seconds": [round(float(s), 4) for s in seconds],
    }


def _sets(res: Any) -> dict[str, Any]:
    """The sizes of the first sets, and the passes of all products."""
    history = res.history
    sizes = {name: int(history[f"size_{name}"][0]) for name in "ABC"}
    products = np.diff(history["nhev"]) * history["size_B"][1:]
    return {"sizes": sizes, "product_passes": round(float(2 * products.sum() / sizes["A"]), 2)}


def picture() -> Picture:
    """KSD beside L-BFGS-B."""
    report = json.loads(RESULTS.read_text())
    runs = report["runs"]
    ends = {name: (run["seconds"][-1], run["passes"][-1]) for name, run in runs.items()}
    (seconds, passes), (their_seconds, their_passes) = ends["KSD"], ends["L-BFGS-B"]
    return Picture(
        name="sum-of-losses",
        heading="A sum of losses",
        title=f"Softmax regression, {report['samples']:,} digits",
        axis="loss above its minimum",
        curves=[_curve(name, run) for name, run in runs.items()],
        sentence=f"{report['unknowns']} unknowns, until the gradient is {report['gtol']:g}: "
        f"KSD {seconds:.1f} seconds and {passes:.0f} passes over the data, L-BFGS-B "
        f"{their_seconds:.1f} and {their_passes:.0f}.",
        origin=f"one core of {report['hardware']}, {report['date']}, commit {report['commit']}",
        source=RESULTS,
        limits={"ylim": (3e-9, 3)},
    )


def _curve(name: str, run: dict[str, Any]) -> Curve:
    gaps = [max(gap, 1e-9) for gap in run["gap"]]  # a logarithm has no zero
    return Curve(name, run["seconds"], gaps, f"{run['seconds'][-1]:.1f} s")

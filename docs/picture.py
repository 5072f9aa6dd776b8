"""The picture of the README and the front page: KSD and L-BFGS-B on the digits of the quickstart.

python docs/picture.py run     # runs both, writes docs/_static/ksd-and-lbfgsb.json, and draws
python docs/picture.py         # draws from that file
"""

import json
import os
import platform
import subprocess
import sys
from datetime import date
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "examples")]
RESULT = HERE / "_static/ksd-and-lbfgsb.json"
COLOURS = {"KSD": "#1f77b4", "L-BFGS-B": "#ff7f0e"}


def run():
    """Both methods from the same start; values are above the minimum."""
    import quickstart
    from threadpoolctl import threadpool_limits

    x0 = np.zeros(quickstart.X.shape[1] * quickstart.Y.shape[1])
    with threadpool_limits(limits=1):
        quickstart.run_ksd(x0)  # once before the clock
        runs = {"KSD": quickstart.run_ksd(x0), "L-BFGS-B": quickstart.run_lbfgsb(x0)}
        least = quickstart.minimum(min((r[0] for r in runs.values()), key=lambda r: r.fun).x)
    command = ["git", "describe", "--always", "--dirty"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE)
    report = {
        "environment": f"{date.today()}, commit {asked.stdout.strip() or 'unknown'}, one core of "
        f"{os.cpu_count()}, {platform.machine()}, numpy {np.__version__}",
        "script": "examples/quickstart.py",
        "samples": quickstart.N,
        "unknowns": x0.size,
        "gtol": quickstart.GTOL,
        "runs": {
            name: {
                "success": bool(res.success),
                "seconds": round(float(seconds), 3),
                "passes": [round(float(p), 2) for p in passes],
                "gap": [float(f"{max(v - least, 0):.4g}") for v in values],
            }
            for name, (res, passes, values, seconds) in runs.items()
        },
    }
    RESULT.write_text(json.dumps(report) + "\n")


def draw():
    report = json.loads(RESULT.read_text())
    plt.rcParams.update({"font.size": 12, "svg.hashsalt": "ksdmin"})
    figure, axes = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    for name, curve in report["runs"].items():
        label = f"{name}: {curve['passes'][-1]:.0f} passes, {curve['seconds']:.1f} s"
        gap = np.maximum(curve["gap"], 1e-9)
        axes.semilogy(curve["passes"], gap, color=COLOURS[name], linewidth=2.2, label=label)
    axes.set(
        title=f"Softmax regression, {report['samples']:,} handwritten digits",
        xlabel="passes over the data",
        ylabel="mean loss above its minimum",
        xlim=(0, None),
        ylim=(3e-9, 3),
    )
    axes.grid(alpha=0.25)
    axes.legend()
    figure.savefig(RESULT.with_suffix(".svg"), metadata={"Date": None})


if __name__ == "__main__":
    if sys.argv[1:] == ["run"]:
        run()
    draw()

"""The nets of examples/physics: result, figure and tables, from its committed runs."""

from benchmark_figures import FIGURES
from tables import folded, markdown

from examples.physics.experiments import EXPERIMENTS
from examples.physics.figures import errors
from examples.physics.published import PUBLISHED
from examples.physics.run_config import RESULTS
from examples.physics.seed_series import by_case, load_runs
from examples.physics.table import table
from examples.pictures import physics_run


def section():
    """The case of the front page in words, then all cases."""
    runs, picture = load_runs(RESULTS), physics_run.picture()
    FIGURES.mkdir(parents=True, exist_ok=True)
    cases = by_case(runs)
    drawn = errors(cases, FIGURES / "physics.svg")
    return "\n\n".join(
        [
            f"**{picture.title}. {picture.sentence}** ({picture.origin})",
            on_a_gpu(cases),
            f"![Errors of all problems against seconds](generated/benchmarks/{drawn.name})",
            folded("Errors and losses of all methods", table(runs)),
        ]
    )


def on_a_gpu(cases):
    """KSD's errors there, each beside the least one that is published."""
    shown = [
        (case, series)
        for case, methods in cases.items()
        if physics_run.on_a_gpu(case) and case.problem in PUBLISHED and case.dtype == "float64"
        for series in methods
        if series.method == "ksd" and not series.options
    ]
    rows = []
    for case, series in shown:
        method, error, _ = PUBLISHED[case.problem][-1]
        ours = f"{series.median_at_end('error'):.1e}"
        rows.append([EXPERIMENTS[case.problem].title, ours, f"{error:.1e} ({method})"])
    seconds = " or ".join(sorted({f"{case.seconds:g}" for case, _ in shown}))
    errors_of_both = markdown(
        ["problem", f"KSD's error after {seconds} s on a GPU", "least error published"], rows
    )
    return (
        f"{errors_of_both}\n\nPublished runs took up to 16 hours, on other GPUs. The folded table "
        "below says how many of our runs shared the GPU."
    )

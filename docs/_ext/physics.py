"""The nets of examples/physics: result, figure and tables, from its committed runs."""

from benchmark_figures import FIGURES
from tables import folded

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
    words = [
        f"{EXPERIMENTS[case.problem].title} {series.median_at_end('error'):.1e} "
        f"({PUBLISHED[case.problem][-1][1]:.1e})"
        for case, series in shown
    ]
    seconds = {f"{case.seconds:g}" for case, _ in shown}
    return (
        f"After {' or '.join(sorted(seconds))} s on a GPU, and in brackets the least error that is "
        f"published, after up to 16 hours: {'; '.join(words)}. (The table below says how many runs "
        "shared the GPU.)"
    )

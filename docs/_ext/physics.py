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
            f"![Errors of all problems against seconds](generated/benchmarks/{drawn.name})",
            folded("Errors and losses of all methods", table(runs)),
        ]
    )


def beside_published():
    """KSD's errors on a GPU, each beside the least one that is published, by its own measure."""
    rows = [
        [
            EXPERIMENTS[case.problem].title,
            EXPERIMENTS[case.problem].measure,
            f"{series.median_at_end('error'):.1e}",
            f"{case.seconds:g}",
            len(series.runs),
            f"{PUBLISHED[case.problem][-1][1]:.1e}",
            "{0}: {2}".format(*PUBLISHED[case.problem][-1]),
        ]
        for case, methods in by_case(load_runs(RESULTS)).items()
        if physics_run.on_a_gpu(case) and case.problem in PUBLISHED and case.dtype == "float64"
        for series in methods
        if series.method == "ksd" and not series.options
    ]
    header = ["problem", "measure", "KSD", "seconds", "seeds", "published", "by"]
    return markdown(header, rows)

"""The nets of examples/physics: result, figure and tables, from its committed runs."""

from benchmark_figures import FIGURES
from tables import folded

from examples.physics.figures import errors
from examples.physics.run_config import RESULTS
from examples.physics.seed_series import by_case, load_runs
from examples.physics.table import table
from examples.pictures import physics_run


def section():
    """The case of the front page in words, then all cases."""
    runs, picture = load_runs(RESULTS), physics_run.picture()
    FIGURES.mkdir(parents=True, exist_ok=True)
    drawn = errors(by_case(runs), FIGURES / "physics.svg")
    return "\n\n".join(
        [
            f"**{picture.title}. {picture.sentence}** ({picture.origin})",
            f"![Errors of all problems against seconds](generated/benchmarks/{drawn.name})",
            folded("Errors and losses of all methods", table(runs)),
        ]
    )

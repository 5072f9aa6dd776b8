"""What asv tracks: evaluations, and their ratio to L-BFGS-B's."""

from examples.benchmarks.tracked.runs import RUNS, passes

BY_NAME = {run.__name__: run for run in RUNS}


class Counts:
    """Passes of the default method, and how many L-BFGS-B takes for the same."""

    params = tuple(BY_NAME)
    param_names = ("run",)

    def track_passes(self, run):
        return passes(BY_NAME[run]("ksd"))

    def track_iterations(self, run):
        return BY_NAME[run]("ksd").nit

    def track_ratio_to_lbfgsb(self, run):
        return passes(BY_NAME[run]("ksd")) / passes(BY_NAME[run]("L-BFGS-B"))

    track_passes.unit = "passes"
    track_iterations.unit = "iterations"
    track_ratio_to_lbfgsb.unit = "ratio"

"""Sums of losses of many kinds: KSD beside L-BFGS-B.

    python examples/benchmarks/losses.py --half tuning
    python examples/benchmarks/losses.py --table

40 data sets of nine kinds, `regression_suite/loss_sets.py`, one half for tuning and one set aside.
The objective is the mean loss + l2 / 2 |w|^2 from w = 0, and what is measured is the passes and the
seconds of one thread to a gap (f - f*) / (f(0) - f*) of 1e-6 on all samples: a value or a gradient
on all samples is one pass, a product two. Of KSD the worst of three seeds counts. Runs are kept in
results/losses as `regression.py` keeps its own. Two of the sets are in the package statsmodels.
"""

from __future__ import annotations

import this_checkout  # noqa: F401
from threadpoolctl import threadpool_limits

from examples.benchmarks.regression_suite import loss_sets, loss_tables
from examples.benchmarks.regression_suite.suites import LOSSES


@threadpool_limits.wrap(limits=1)  # so that times compare on a busy machine too
def main() -> None:
    parser = LOSSES.arguments(__doc__)
    parser.add_argument("--half", choices=loss_sets.HALVES, help="only these data sets")
    args = parser.parse_args()
    if args.half:
        args.data = [name for name in args.data if name in loss_sets.names(args.half)]
    if args.table:
        report = loss_tables.report(args.out, LOSSES.results, args.l2)
        if tuple(args.l2) == LOSSES.l2:
            (args.out / "table.md").write_text(report + "\n")
        print(report)
        return
    LOSSES.run_all(args)


if __name__ == "__main__":
    main()

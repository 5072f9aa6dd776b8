"""Sums of losses of many samples: KSD with its first sets and with larger ones, and L-BFGS-B.

    python examples/benchmarks/many_samples.py
    python examples/benchmarks/many_samples.py --table

Eight generated sets of 65,000 to 400,000 samples, `regression_suite/large_sets.py`, with two
penalties. "ksd-everything" begins with all samples in A, and 1/20 of them in B and in C. What is
measured is as in `losses.py`; means are geometric ones, with 95% intervals by bootstrap over the
problems.
"""

from __future__ import annotations

import this_checkout  # noqa: F401
from threadpoolctl import threadpool_limits

from examples.benchmarks.regression_suite import large_tables
from examples.benchmarks.regression_suite.suites import MANY_SAMPLES


@threadpool_limits.wrap(limits=1)  # so that times compare on a busy machine too
def main() -> None:
    args = MANY_SAMPLES.arguments(__doc__).parse_args()
    if not args.table:
        MANY_SAMPLES.run_all(args)
        return
    report = large_tables.report(args.out, MANY_SAMPLES.results, args.l2)
    if tuple(args.l2) == MANY_SAMPLES.l2:
        (args.out / "table.md").write_text(report + "\n")
    print(report)


if __name__ == "__main__":
    main()

"""Logistic and softmax regression: KSD beside L-BFGS-B, Newton-CG and trust-krylov.

    KSDMIN_DATA=folder python examples/benchmarks/regression.py
    python examples/benchmarks/regression.py --table

The objective is the mean loss + l2 / 2 |w|^2 from w = 0. The gap is (f - f*) / (f(0) - f*) on all
samples; a value or a gradient on all samples is one pass, a product two. Every run is kept in
results/regression as soon as it ends: one that is there is not repeated, those of ksdmin unless
its code has changed. All methods have one thread.

Trying out a change of ksdmin:

    ... --only ksd --data a9a mnist-parity --l2 1e-4 1e-6 --out /tmp/memory2 \
        --options '{"memory": 2}'
    ... --table --out /tmp/memory2
"""

from __future__ import annotations

import this_checkout  # noqa: F401
from threadpoolctl import threadpool_limits

from examples.benchmarks.regression_suite import data_sets, ratio_tables
from examples.benchmarks.regression_suite.suites import REGRESSION


@threadpool_limits.wrap(limits=1)  # so that times compare on a busy machine too
def main() -> None:
    args = REGRESSION.arguments(__doc__).parse_args()
    if args.table:
        report = ratio_tables.report(args.out, args.data, args.l2)
        if (list(args.data), tuple(args.l2)) == (list(data_sets.SETS), data_sets.L2):
            (args.out / "table.md").write_text(report + "\n")
        print(report)
        return
    REGRESSION.run_all(args)


if __name__ == "__main__":
    main()

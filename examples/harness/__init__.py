"""What the paper's experiments and the benchmarks share.

- `recorder`: the clock, the count of work and the limits that every run has.
- `store`: the files of runs, one run per line, which runs are added to.
- `tables`: tables in Markdown, and how numbers look in them.
- `provenance`: when, on what and with which code a run was made.
- `progress_bar`: the seconds of a run, shown in a terminal.
- `net_training`: training a net by ksdmin's methods and others.

Nothing here imports from an experiment or a benchmark. A new one defines its problems, lets a
recorder watch its runs, adds them to a store with their provenance, and makes its table of them.
"""

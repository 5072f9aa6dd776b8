"""What every rule and every constant does, measured one at a time.

- `constants`: finds the numbers in the source of ksdmin._ksd.
- `variants`: the default, each rule switched off, each constant at other values.
- `rewritten`: ksdmin with one number changed, in a process of its own.
- `tasks`, `sums`, `net_tasks`: the collections of problems, and what a run is measured by.
- `preloaded`: data that all processes share.
- `jobs`: which runs, in which order, in how many processes.
- `ratios`: runs against those of the default, with intervals, and the tables.
"""

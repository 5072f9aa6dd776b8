"""What one constant does: the default, and each constant alone at another value.

- `variants`: which constants, which values, and how they are set for one run.
- `tasks`: the collections of problems, and what a run on one of them is measured by.
- `ratios`: runs against those of the default, and the table.
"""

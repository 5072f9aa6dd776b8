"""Classic functions of any size that cost a few array operations, for the benchmark `seconds.py`.

- `elements`: sums of small terms, assembled from slices of x.
- `chains`: functions of neighbours, and with one variable that all terms share.
- `whole`: functions of all variables at once: residuals, grids, sparse data.
- `families`: all of them by name, their sizes, and which half is set aside.
"""

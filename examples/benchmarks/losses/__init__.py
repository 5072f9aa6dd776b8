"""Regression problems as sums of losses, and runs of KSD and of SciPy's methods on them.

`linear` has the problems, `links` the losses, `data` and `synthetic` the data sets, `optima` the
least values, `methods` one run of one method, `store` the files of results, `tables` what they
show.
"""

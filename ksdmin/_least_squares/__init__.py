"""Least squares as SciPy's users call it: `least_squares` and `curve_fit`."""

"""Regression problems as sums of losses, and runs of KSD and of SciPy's methods on them.

The parts of the benchmark `regression.py`.
"""

"""The parts of logistic.py: data sets, the objective, solvers, the table."""

"""What is minimised: the verbs of a problem, SciPy-style callables, sets of samples, arrays."""

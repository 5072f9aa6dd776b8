"""Krylov Subspace Descent: Algorithms 2 and 3 of the paper, and the rules that adapt a run."""

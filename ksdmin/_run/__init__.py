"""What the methods share: one run's evaluations, its state, when it ends and what it records."""

"""What the paper's experiments and the benchmarks share: recorder, store, tables, methods."""

"""The data sets of the paper's experiments and of the benchmarks, and how their files are found."""

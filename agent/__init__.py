"""The process on the board: it plans and runs benchmarks and reports results."""

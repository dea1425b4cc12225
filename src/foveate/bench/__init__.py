"""Benchmarks that people run on their own machine, and what the scripts in `benchmarks/` share with them."""

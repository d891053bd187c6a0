"""Benchmarks. Each module prints a table; bench/RESULTS.md lists the figures with the commands that produced them."""

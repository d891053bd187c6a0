"""Measurements. Each module prints a table; bench/RESULTS.md keeps the figures with the command that made them."""

"""Seeded simulation of an API server, nodes and managers, in one process and virtual time, with all kinds of faults.

    python -m tests.simulation --seeds 1-2000

The seed determines the faults and the actions of users; the same seed gives the same history. Invariants are checked
after every write and at the end, when everything must have settled. Docs: docs/simulation.md.
"""

"""Simulation by seed: API server, nodes and managers in one process on virtual time, with faults of every kind.

    python -m tests.simulation --seeds 1-2000

A seed decides the actions of users and the faults; the same seed gives the same history. Invariants are checked after
every write and at the end, when everything must have settled. Docs: docs/simulation.md.
"""

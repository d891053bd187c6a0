"""Simulation by seed: API server, nodes and managers in one process on virtual time, with everything going wrong.

    python -m tests.simulation --seeds 1-2000

A seed decides what users do, which faults happen and when; the same seed gives the same history. After every write the
invariants are checked, and at the end that everything came to rest as it should be. Docs: docs/simulation.md.
"""

"""Which nodes are to be served, and what comes next: pure functions."""

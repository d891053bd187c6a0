"""Which Pods are meant, how far each is, and what comes next: pure functions."""

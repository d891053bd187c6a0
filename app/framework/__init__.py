"""What a feature declares: one value says everything about it that others have to know.

A feature's folder exports ``FEATURE`` from its ``feature.py``; ``app.manager.features`` lists the folders. Caches,
reflectors, queues, event recorders, metrics, permissions, gates, flags, CRDs, reference pages and the command line are
derived from it (docs/adding-a-kind.md)."""

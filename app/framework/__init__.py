"""Features: one declaration with everything the rest of the program needs to know about a feature.

A feature's folder exports ``FEATURE`` from its ``feature.py``; ``app.manager.features`` lists the folders. Caches,
reflectors, queues, event recorders, metrics, permissions, gates, flags, CRDs, reference pages and the command line are
derived from these declarations (docs/adding-a-kind.md).
"""

"""Serving certificates: issue, store, check; CA bundles."""

"""Serving certificates and CA bundles: issue, store, check and rotate."""

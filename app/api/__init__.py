"""Descriptions of our kinds: models, schemas, conversion, and the Go types of the core API."""

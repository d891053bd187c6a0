"""Tests of other projects' software with our manager, on demand: make test-peers."""

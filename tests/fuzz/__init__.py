"""Hostile input made from a seed, and the tests that send it to the service."""

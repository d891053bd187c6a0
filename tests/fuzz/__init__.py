"""Hostile input generated from a seed, and the tests that send it to the service."""

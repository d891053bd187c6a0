"""Core types inside our kinds: what Kubernetes defaults and validates in a Pod template."""

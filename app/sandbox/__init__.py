"""In-process control plane and simulated nodes for demos and tests."""

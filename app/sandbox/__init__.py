"""An embedded control plane and simulated nodes, for trying out and for tests."""

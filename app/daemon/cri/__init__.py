"""The container runtime interface: its types, and the gRPC client that speaks it."""

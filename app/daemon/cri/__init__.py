"""The container runtime interface (CRI): types and a gRPC client."""

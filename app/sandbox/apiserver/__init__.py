"""An API server in memory: the Kubernetes API for trying out, tests and simulation."""

"""The built-in controllers of Kubernetes that a simulated cluster needs."""

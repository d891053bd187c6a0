"""Built-in controllers of Kubernetes, as far as a simulated cluster needs them."""

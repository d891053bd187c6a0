"""A small Kubernetes toolkit that knows no Kruise kind: client, caches, queues, controllers, and plain value types."""

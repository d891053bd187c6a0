"""In-memory Kubernetes API server: resources are data, with all verbs, watches, webhooks and CRDs. See ``server``."""

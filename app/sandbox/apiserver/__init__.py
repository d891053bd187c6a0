"""In-memory Kubernetes API server with all verbs, watches, webhooks and CRDs. Start reading at ``server``."""

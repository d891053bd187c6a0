"""An API server of Kubernetes in memory: resources are data, all verbs, watches, webhooks, CRDs. See ``server``."""

"""The HTTPS admission service: envelope, registry of handlers, webhook configurations, conversion."""

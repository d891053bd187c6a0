"""The HTTPS admission service: the AdmissionReview envelope, handlers by path, webhook configurations and CRD
conversion."""

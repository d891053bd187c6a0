"""Tables: the server-side columns of ``kubectl get``."""

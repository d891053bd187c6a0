"""Tables: what ``kubectl get`` prints, made by the server."""

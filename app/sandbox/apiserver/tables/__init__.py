"""Tables: what `kubectl get` prints, made by the server."""

from app.sandbox.apiserver.tables.table import TableKind, builtin_table, custom_table, partial_object

__all__ = ["TableKind", "builtin_table", "custom_table", "partial_object"]

"""A toy kind, added as docs/adding-a-kind.md says: Widgets own as many Pods as they have replicas."""

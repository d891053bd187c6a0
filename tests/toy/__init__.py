"""A toy kind, added as docs/adding-a-kind.md describes: a Widget owns as many Pods as it has replicas."""

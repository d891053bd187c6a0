"""A read-only page that shows a cluster's workloads and their Pods as they change."""

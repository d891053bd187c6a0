"""A read-only page that shows the live state of a cluster's workloads and Pods."""

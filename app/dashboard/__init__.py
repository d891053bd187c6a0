"""A page that shows a cluster's workloads and their Pods as they change. It reads, and writes nothing."""

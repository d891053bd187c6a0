"""The workloads: each keeps a number of Pods as its object says."""

"""Where Pods of a workload run: subsets with places, and nodes that Pods come back to."""

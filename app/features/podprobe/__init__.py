"""PodProbeMarker: the node agent probes containers, and the results are set on their Pods as labels, annotations and
conditions. It also runs liveness probes whose restarts respect the workload's availability."""

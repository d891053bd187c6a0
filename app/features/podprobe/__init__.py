"""PodProbeMarker: the node agent probes containers, and a controller sets the results on the Pods as labels,
annotations and conditions. The agent also runs liveness probes; a controller restarts a container that fails one only
if the workload and its budget allow it."""

"""A real Kubernetes cluster on one machine, for tests: built once, started in seconds, gone without a trace.

Two levels: `ControlPlane` (etcd, kube-apiserver, kube-controller-manager; no root needed) and `Cluster` (a control
plane and nodes with a kubelet, a containerd and real containers each; root). `python -m tests.cluster` is the command
line, `fixtures` has the pytest fixtures, and docs/testing-cluster.md says why each piece is there.
"""

"""A real Kubernetes cluster on one machine, for tests: built once, started in seconds, removed without a trace.

There are two levels: `ControlPlane` (etcd, kube-apiserver, kube-controller-manager; needs no root) and `Cluster` (a
control plane and nodes, each with a kubelet, containerd and real containers; needs root). `python -m tests.cluster` is
the command line, `fixtures` has the pytest fixtures, and docs/testing-cluster.md explains why each part is needed.
"""

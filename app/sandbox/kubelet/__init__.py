"""The kubelet of a simulated node: what happens to a Pod, decided from its spec and a script."""

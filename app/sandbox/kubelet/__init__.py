"""Kubelet of a simulated node: derives what happens to a Pod from its spec and a script."""

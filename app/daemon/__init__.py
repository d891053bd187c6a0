"""The node agent: pulls images, restarts containers, probes them, and reports what they were started with.

One process per node. It speaks to the node's container runtime (``cri``) and to the API server, of which it watches
its own node's objects only. Each concern is a plan that decides and a shell that acts: ``images``, ``recreate``,
``probes``, ``meta``. ``agent`` puts them together; ``main`` is the command.
"""

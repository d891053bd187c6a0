"""The node agent: pulls images, restarts containers, probes them, and reports how they were started.

The agent runs as one process per node. It connects to the node's container runtime (``cri``) and to the API server,
where it watches only the objects of its own node.

For each task, a plan makes the decisions and another module carries them out: ``image_plan`` and ``image_puller``,
``recreate_plan`` and ``recreator``, ``probe_plan`` and ``prober``, ``meta_plan`` and ``meta_reporter``. ``agent``
wires them together; ``main`` is the command."""

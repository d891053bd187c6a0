"""Shells: every controller and every writer of the node agent against the same faults.

A case (``cases.py``) declares objects and a few edits for one controller; everything else is derived. The world
(``world.py``) is the sandbox's API server with the controller's caches filled by hand on virtual time, so that a cache
can be late, and any single request can be refused or lost, or meet another object under the same name. ``checks.py``
lists the faults and what must hold after each. ``expected.json`` records, per case, the preconditions of its writes,
how many there are and in which order a reconcile makes them without faults, and what a reconcile still writes after a
request failed: ``python -m tests.shells --write``, for review.
``planted.yaml`` lists bugs that the suite catches: ``python -m tests.shells.planted``.
"""

"""Shells: every controller and every writer of the node agent against the same faults.

A case (``cases.py``) declares objects and a few edits for one controller; everything else is derived. The world
(``world.py``) is the sandbox's API server with the controller's caches filled by hand on virtual time, so that a cache
can be late, any single request can be refused or lost, or meet another object under the same name, the process can end
after a write, unusable objects can come before the others, and another namespace can have objects of the same names.
``checks.py`` lists the faults and what must hold after each.

``expected.json`` records, per case, the preconditions of its writes; without faults, how many requests, events,
increments of metrics and reconciles there are, what is sent and in which order a reconcile writes; and after a fault,
what a reconcile still writes and reports, and how often it is repeated while a request keeps failing:
``python -m tests.shells --write``, for review.

``planted.yaml`` lists bugs that the suite catches: ``python -m tests.shells.planted``.
"""

"""Tests every controller and every writer of the node agent against the same faults.

A case (``cases.py``) declares objects and a few edits for one controller; everything else is derived. The world
(``world.py``) is the sandbox's API server in virtual time, and the controller's caches are filled by hand. So a cache
can be late; any request can be refused, get lost or reach another object of the same name; the process can end after a
write; unusable objects can come before the others; and another namespace can have objects of the same names.
``checks.py`` lists the faults and what must hold after each.

``python -m tests.shells --write`` records for review in ``expected.json``, per case: the preconditions of its writes;
without faults, the numbers of requests, events, metric increments and reconciles, what is sent, and the order of the
writes of a reconcile; after a fault, what the reconcile still writes and reports, and how often it is repeated while a
request keeps failing.

``planted.yaml`` lists bugs that the suite must catch: ``python -m tests.shells.planted``.
"""

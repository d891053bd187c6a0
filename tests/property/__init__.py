"""Random Pods and SidecarSets against a slow reference: ``python -m tests.property --cases 100000``.

``generate`` makes a case from a number, ``oracle`` returns the expected answer (written from the rules, not from
the product), ``product`` the actual one, ``checks`` compares them and checks the patch, and ``run`` repeats that.
"""

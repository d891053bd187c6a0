"""Random Pods and SidecarSets against a slow reference: ``python -m tests.property --cases 100000``.

``generate`` makes a case from a number, ``oracle`` says what admission must answer (written from the rules, never from
the product), ``product`` asks the product, ``checks`` compares the two and looks at the patch, ``run`` repeats that.
"""

"""AdvancedCronJob: a job on a schedule.

``plan`` decides what is due, ``reconcile`` carries it out.
"""

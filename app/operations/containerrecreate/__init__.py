"""Containers of running Pods restarted on request, the manager's half: what the node agent needs to know, and the end.

| room | what it decides or does |
|---|---|
| `plan` | what is due for a request |
| `reconcile` | the shell: reads caches, carries the plan out |
| `admission` | the webhook that fills a request in from its Pod |
| `controller`, `slice` | the declarations |
"""

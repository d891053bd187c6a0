"""CloneSet: Pods without identity, updated in place where that is possible.

| room | what it decides or does |
|---|---|
| `settings`, `resolved` | what the object and the feature gates ask for, in the plan's words |
| `limits`, `diff` | how many Pods are missing, too many, to be updated, and how many may be unavailable meanwhile |
| `pods` | what the plan knows of one Pod, worked out once per resourceVersion |
| `scale`, `update` | which Pods are created, deleted, refreshed and updated now |
| `status`, `progress` | the numbers and conditions people read |
| `reconcile` | the shell: reads caches, asks the above |
| `scaling`, `updating`, `pulling`, `reporting`, `writer` | carrying out what came of it |
| `controller` | the table: what is watched, how that maps to keys, what may be written |
"""

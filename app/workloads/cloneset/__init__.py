"""CloneSet: Pods without identity, updated in place where that is possible.

| room | what it decides or does |
|---|---|
| `plan` | pure: everything that is decided |
| `snapshot`, `state` | what one reconcile goes by; what is remembered between reconciles |
| `reconcile` | the shell: asks the plan, carries it out, on the engine that all workloads share |
| `scaling`, `updating`, `reporting` | carrying out what came of it |
| `controller`, `slice` | the table: what is watched and what may be written; the declaration of the slice |
| `admission`, `validation`, `strict_validation`, `admission_lookups` | the webhooks |
"""

"""Advanced StatefulSet: Pods with ordinals and claims of their own, updated in place where that is possible.

| room | what it decides or does |
|---|---|
| `plan` | pure: everything that is decided |
| `reconcile` | the shell: asks the plan, carries it out, on the engine that all workloads share |
| `controller`, `slice` | the table: what is watched and what may be written; the declaration of the slice |
| `admission`, `validation`, `admission_lookups`, `storage` | the webhooks, and what they ask of the cluster |
"""

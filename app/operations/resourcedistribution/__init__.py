"""ResourceDistribution: a ConfigMap or Secret kept alike in many namespaces.

| room | what it decides or does |
|---|---|
| `plan/targets` | which namespaces get a copy |
| `plan/copies` | what a copy says, whether one is up to date, how it is brought there |
| `plan/status` | counts and conditions |
| `reconcile` | the shell: reads caches and copies, carries the plan out |
| `admission` | the validating webhook |
| `slice` | the declaration |
"""

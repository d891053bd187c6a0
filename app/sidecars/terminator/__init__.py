"""Sidecars of jobs: they are stopped when the main containers of their Pod have ended, so that the job can end.

| room | what it decides or does |
|---|---|
| `objects` | Pods with the env of their containers, as the API server has them |
| `plan` | which containers are sidecars, whether the main ones have ended, and what is due then |
| `reconcile` | the shell |
| `slice` | the declaration |
"""

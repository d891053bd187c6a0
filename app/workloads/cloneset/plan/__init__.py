"""The plan of a CloneSet: pure functions that decide. No I/O, no clock, no randomness.

| room | what it decides |
|---|---|
| `settings`, `resolved` | what the object and the feature gates ask for, in the plan's words |
| `limits`, `diff` | how many Pods are missing, too many, to be updated, and how many may be unavailable meanwhile |
| `rollout` | where everything that is decided comes together |
| `scale`, `update`, `orders` | which Pods are created, deleted and updated now, and in which order |
| `creation` | what a new Pod and its claims look like |
| `status`, `progress` | the numbers and conditions people read |
| `preview`, `explain` | the same decisions played to their end, and told in sentences |
"""

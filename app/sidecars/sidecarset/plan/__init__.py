"""The plan of a SidecarSet: pure functions that decide about its roll-out. No I/O, no clock, no randomness.

| room | what it decides |
|---|---|
| `view`, `records` | what the set asks for, and what its Pods remember of it, in the plan's words |
| `facts`, `podcounts` | how one Pod stands to the set, and the sums over all of them |
| `rollout` | how many Pods are updated now, which, and in which order |
| `update`, `hot` | what is written to one Pod, cold or from twin to twin |
| `upgradable` | the condition that says whether a Pod can be updated in place at all |
"""

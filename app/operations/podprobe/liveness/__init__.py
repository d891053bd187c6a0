"""Liveness by the node agent: a container whose probe fails is restarted only as fast as its workload can bear.

| room | what it decides or does |
|---|---|
| `saved` | the probes that a Pod was relieved of, and which ones the agent can run |
| `step` | the step of Pod creation that saves them |
| `plan` | what a node probes, which results mean a restart, and whether there is room for one |
| `reconcile` | the shell of the controller, node by node |
"""

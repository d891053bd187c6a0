"""Probes that mark Pods, the manager's half: which node probes what, and what the results do to Pods.

| room | what it decides or does |
|---|---|
| `objects` | NodePodProbes as the controllers read them |
| `plan/probes` | which Pods a PodProbeMarker is about, and what their nodes probe |
| `plan/marks` | what results do to a Pod |
| `markers`, `nodes` | the shells of the two controllers |
| `admission` | the webhook, and the step of Pod creation for serverless Pods |
| `controllers`, `slice` | the declarations |
"""

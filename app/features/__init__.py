"""One folder per feature: a kind with everything about it, or a behavior of Pods. All folders use the same file names.

| file | what it holds |
|---|---|
| `types`, `kind` | the fields per version; the definition of the kind, with conversion and defaults |
| `validation`, `webhooks` | the rules of an object; the feature's own webhooks |
| `pod_admission` | what the feature does to Pods in admission |
| `plan` | all decisions; pure |
| `reconcile`, `writes` | the controller; its writes to the cluster |
| `commands` | what users see: commands, explanations, the section of the dashboard |
| `feature` | `FEATURE`, the declaration |"""

"""One folder per feature: a kind with everything about it, or a behavior of Pods. The same file names everywhere.

| file | what it holds |
|---|---|
| `types`, `kind` | the fields per version; the definition of the kind, with conversion and defaults |
| `validation`, `webhooks` | the rules of an object; the feature's own webhooks |
| `pod_admission` | what the feature does to Pods in admission |
| `plan` | everything that is decided; pure |
| `reconcile`, `writes` | the controller; what it carries out |
| `commands` | what people are shown: commands, explanations, the section of the dashboard |
| `feature` | `FEATURE`, the declaration |"""

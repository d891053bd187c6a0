"""PodUnavailableBudget: how many Pods of an application may be out of service at once, whoever takes them out."""

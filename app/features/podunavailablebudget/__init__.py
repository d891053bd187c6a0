"""PodUnavailableBudget: limits how many Pods of an application may be unavailable at once."""

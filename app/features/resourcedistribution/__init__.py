"""ResourceDistribution: copies one Secret or ConfigMap to many namespaces."""

"""ResourceDistribution: copies of one Secret or ConfigMap in many namespaces."""

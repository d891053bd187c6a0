"""AdvancedCronJob: starts jobs on a schedule."""

"""What keeps workloads alive: protection from deletion."""

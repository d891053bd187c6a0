"""What users do and see, driven with kubectl: the same scenarios on every level that can show them."""

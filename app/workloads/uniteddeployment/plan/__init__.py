"""The pure half of UnitedDeployment."""

"""Pulling images ahead of their use: ImagePullJob, ImageListPullJob and NodeImage."""

"""Pulls images ahead of time: ImagePullJob, ImageListPullJob and NodeImage."""

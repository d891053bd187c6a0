"""Pulls images in advance: ImagePullJob, ImageListPullJob and NodeImage."""

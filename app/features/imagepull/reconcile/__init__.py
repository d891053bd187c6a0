"""Controllers of ImagePullJob, ImageListPullJob and NodeImage, and the mappers that enqueue the jobs."""

"""Controllers of ImagePullJob, ImageListPullJob and NodeImage, and the mappers from changes to jobs."""

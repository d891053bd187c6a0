"""The controllers of image pulls: jobs, lists and NodeImages, and the mappers from changes to jobs."""

"""Pod logic shared by the features."""

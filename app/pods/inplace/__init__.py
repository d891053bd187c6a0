"""In-place updates of Pods: change images, metadata or resources of a running Pod. Pure.

``eligibility`` compares two revisions and returns what changes, or what prevents an in-place update. ``steps`` starts
an update and advances it. ``completion`` decides whether the containers have changed. ``batch`` orders containers by
launch priority. ``state`` reads and writes the two annotations that record all progress.

The results are bodies of strategic merge patches. Patches to a Pod and its status carry the uid and resourceVersion of
the Pod they were computed from, so after a conflict the caller must compute them again.
"""

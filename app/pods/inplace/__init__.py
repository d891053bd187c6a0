"""In-place updates of Pods: the same Pod with other images, metadata or resources. Pure.

``eligibility`` compares two revisions and says what changes, or what forbids an in-place update. ``steps`` starts an
update and carries it on, ``completion`` says when the containers have changed, ``batch`` orders containers with launch
priorities. ``state`` holds the two annotations in which all progress is kept.

The results are bodies of strategic merge patches. Patches of a Pod and its status carry the uid and resourceVersion of
the Pod they were computed from, so after a conflict the caller must compute them again."""

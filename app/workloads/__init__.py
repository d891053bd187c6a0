"""The engine shared by CloneSets, StatefulSets, DaemonSets and jobs; see ``docs/workload-engine.md``.

``settings``, ``pods``, ``steps``, ``report`` and ``predownload`` are pure. ``reconciler`` contains the skeleton of a
reconcile and ``state`` its data; ``writer``, ``updater``, ``history`` and ``image_pulls`` carry out the decisions.
"""

"""The engine that CloneSets, StatefulSets, DaemonSets and jobs share; see ``docs/workload-engine.md``.

``settings``, ``pods``, ``steps``, ``report`` and ``predownload`` are pure. ``reconciler`` is the skeleton of a
reconcile and ``state`` what it goes by; ``writer``, ``updater``, ``history`` and ``image_pulls`` carry out what was
decided."""

"""Plan the steps that take over a cluster from OpenKruise or restore OpenKruise. Pure.

The steps are ordered so that requests are always served. Permissions are added before they are used and removed last.
The Deployment is rolled out with a surge, so replicas of both managers serve behind one Service with one certificate,
and one Lease determines which replica reconciles. CRDs change only while pykruise alone serves ``/convert``.

Completed steps are detected in the cluster, so an interrupted takeover continues where it stopped.

Settings stay in effect: gates whose default differs in pykruise are written into the arguments. [MGR-161]
"""

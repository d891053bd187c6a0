"""Taking over a cluster that OpenKruise runs in, and giving it back: what exists, what changes, in which order. Pure.

The order leaves no moment without an answer. Permissions are added before anything uses them and removed last. The
Deployment is rolled out with a surge, so replicas of both serve behind one Service, with one certificate, and one Lease
decides which of them reconciles. Definitions change while only ours answer ``/convert``.

The steps already done are read from the cluster, so an interrupted takeover continues where it stopped."""

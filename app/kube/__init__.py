"""A small Kubernetes toolkit that knows no Kruise kind. Each module is one concept and works alone; read in this order:

* ``clock`` (and ``virtualtime`` for tests), ``errors``, ``resources``, ``objects``: time, refusals, endpoints, kinds
* ``config``, ``transport``, ``client``: reach an API server and speak its verbs (with ``ratelimit`` and ``backoff``)
* ``watch``, ``reflector``, ``store``: keep what the server has in memory, with indexes
* ``queue``, ``controller``, ``expectations``: from changes to keys to reconciles on a cache that can be trusted
* ``events`` (with ``eventcorrelation``), ``leases``: tell people; let one replica of several work
* ``admission`` and pure values: ``selectors``, ``quantities``, ``patches``, ``fielderrors``, ``intorpercent``, …

``docs/kube-toolkit.md`` shows how they compose.
"""

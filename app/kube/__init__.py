"""A small Kubernetes toolkit that knows none of our kinds. Each module is one concept; read them in this order:

* ``clock``, ``errors``, ``resources``, ``discovery``, ``objects``: time, errors, endpoints, structs of foreign objects
* ``config``, ``wire``, ``transport`` (or ``http1``), ``client``: reach an API server and speak its verbs
* ``reflector``, ``store``: keep a copy of what the server has in memory, with indexes
* ``queue``, ``controller``, ``expectations``, ``concurrency``: turn changes into keys, and keys into reconciles
* ``statuses``, ``rulings``, ``events``, ``leases``: write statuses, record events, elect a leader
* ``admission`` and pure values: ``selectors``, ``quantities``, ``patches``, ``fielderrors``, ``jsonvalues``, ``images``

``docs/kube-toolkit.md`` shows how they compose."""

"""A small Kubernetes toolkit, independent of our kinds. Each module covers one concept; read them in this order:

* ``clock``, ``errors``, ``resources``, ``discovery``, ``objects``: time, errors, endpoints, structs of foreign objects
* ``config``, ``wire``, ``transport`` (or ``http1``), ``client``: connect to an API server and call its verbs
* ``reflector``, ``store``: keep an indexed copy of the server's objects in memory
* ``queue``, ``controller``, ``expectations``, ``concurrency``: map changes to keys, and reconcile the keys
* ``statuses``, ``rulings``, ``events``, ``leases``: write statuses, record events, elect a leader
* ``admission`` and pure values: ``selectors``, ``quantities``, ``patches``, ``fielderrors``, ``jsonvalues``, ``images``

``docs/kube-toolkit.md`` shows how they compose."""

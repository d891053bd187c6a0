"""The core Volume of Kubernetes and all its sources, as Go reads and prints them.

Their text names revisions of our kinds (SS-73, SS-74), so it has to agree with OpenKruise's to the byte. The order is
that of the Go structs as of Kubernetes 1.34.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api.gocore import LABEL_SELECTOR, always, optional
from app.api.gojson import BOOL, INT32, INT64, QUANTITY, STRING, GoField, GoType, list_of, map_of, pointer, struct


def _source(*fields: GoField) -> GoType:
    return pointer(struct(*fields))


_STRINGS: Final = list_of(STRING)
_TEXTS: Final = map_of(STRING)
_FS: Final = optional("fsType")
_READ_ONLY: Final = optional("readOnly", BOOL)
_SECRET: Final = optional("secretRef", _source(optional("name")))
_KEYS: Final = optional("items", list_of(struct(always("key"), always("path"), optional("mode", pointer(INT32)))))
_MODE: Final = optional("defaultMode", pointer(INT32))
_OPTIONAL: Final = optional("optional", pointer(BOOL))
_FILES: Final = optional(
    "items",
    list_of(
        struct(
            always("path"),
            optional("fieldRef", _source(optional("apiVersion"), always("fieldPath"))),
            optional(
                "resourceFieldRef",
                _source(optional("containerName"), always("resource"), optional("divisor", QUANTITY)),
            ),
            optional("mode", pointer(INT32)),
        )
    ),
)
_PROJECTION: Final = struct(
    optional("secret", _source(optional("name"), _KEYS, _OPTIONAL)),
    optional("downwardAPI", _source(_FILES)),
    optional("configMap", _source(optional("name"), _KEYS, _OPTIONAL)),
    optional(
        "serviceAccountToken",
        _source(optional("audience"), optional("expirationSeconds", pointer(INT64)), always("path")),
    ),
    optional(
        "clusterTrustBundle",
        _source(
            optional("name", pointer(STRING)),
            optional("signerName", pointer(STRING)),
            optional("labelSelector", pointer(LABEL_SELECTOR)),
            _OPTIONAL,
            always("path"),
        ),
    ),
)


def _null(_: Any, __: str) -> None:
    return None


#: A time that a template never has: always printed, always null.
NO_TIME: Final = GoType(_null, lambda: None, lambda _: False)
#: The spec of a PersistentVolumeClaim.
CLAIM_SPEC: Final = struct(
    optional("accessModes", _STRINGS),
    optional("selector", pointer(LABEL_SELECTOR)),
    optional("resources", struct(optional("limits", map_of(QUANTITY)), optional("requests", map_of(QUANTITY)))),
    optional("volumeName"),
    optional("storageClassName", pointer(STRING)),
    optional("volumeMode", pointer(STRING)),
    optional("dataSource", _source(always("apiGroup", pointer(STRING)), always("kind"), always("name"))),
    optional(
        "dataSourceRef",
        _source(
            always("apiGroup", pointer(STRING)),
            always("kind"),
            always("name"),
            optional("namespace", pointer(STRING)),
        ),
    ),
    optional("volumeAttributesClassName", pointer(STRING)),
)
_CLAIM_TEMPLATE: Final = _source(
    optional(
        "metadata",
        struct(
            optional("name"),
            optional("namespace"),
            always("creationTimestamp", NO_TIME),
            optional("labels", _TEXTS),
            optional("annotations", _TEXTS),
        ),
    ),
    always("spec", CLAIM_SPEC),
)
#: Source → its type.
VOLUME_SOURCES: Final[Mapping[str, GoType]] = {
    "hostPath": _source(always("path"), optional("type", pointer(STRING))),
    "emptyDir": _source(optional("medium"), optional("sizeLimit", pointer(QUANTITY))),
    "gcePersistentDisk": _source(always("pdName"), _FS, optional("partition", INT32), _READ_ONLY),
    "awsElasticBlockStore": _source(always("volumeID"), _FS, optional("partition", INT32), _READ_ONLY),
    "gitRepo": _source(always("repository"), optional("revision"), optional("directory")),
    "secret": _source(optional("secretName"), _KEYS, _MODE, _OPTIONAL),
    "nfs": _source(always("server"), always("path"), _READ_ONLY),
    "iscsi": _source(
        always("targetPortal"),
        always("iqn"),
        always("lun", INT32),
        optional("iscsiInterface"),
        _FS,
        _READ_ONLY,
        optional("portals", _STRINGS),
        optional("chapAuthDiscovery", BOOL),
        optional("chapAuthSession", BOOL),
        _SECRET,
        optional("initiatorName", pointer(STRING)),
    ),
    "glusterfs": _source(always("endpoints"), always("path"), _READ_ONLY),
    "persistentVolumeClaim": _source(always("claimName"), _READ_ONLY),
    "rbd": _source(
        always("monitors", _STRINGS),
        always("image"),
        _FS,
        optional("pool"),
        optional("user"),
        optional("keyring"),
        _SECRET,
        _READ_ONLY,
    ),
    "flexVolume": _source(always("driver"), _FS, _SECRET, _READ_ONLY, optional("options", _TEXTS)),
    "cinder": _source(always("volumeID"), _FS, _READ_ONLY, _SECRET),
    "cephfs": _source(
        always("monitors", _STRINGS), optional("path"), optional("user"), optional("secretFile"), _SECRET, _READ_ONLY
    ),
    "flocker": _source(optional("datasetName"), optional("datasetUUID")),
    "downwardAPI": _source(_FILES, _MODE),
    "fc": _source(
        optional("targetWWNs", _STRINGS), optional("lun", pointer(INT32)), _FS, _READ_ONLY, optional("wwids", _STRINGS)
    ),
    "azureFile": _source(always("secretName"), always("shareName"), _READ_ONLY),
    "configMap": _source(optional("name"), _KEYS, _MODE, _OPTIONAL),
    "vsphereVolume": _source(always("volumePath"), _FS, optional("storagePolicyName"), optional("storagePolicyID")),
    "quobyte": _source(
        always("registry"), always("volume"), _READ_ONLY, optional("user"), optional("group"), optional("tenant")
    ),
    "azureDisk": _source(
        always("diskName"),
        always("diskURI"),
        optional("cachingMode", pointer(STRING)),
        optional("fsType", pointer(STRING)),
        optional("readOnly", pointer(BOOL)),
        optional("kind", pointer(STRING)),
    ),
    "photonPersistentDisk": _source(always("pdID"), _FS),
    "projected": _source(always("sources", list_of(_PROJECTION)), _MODE),
    "portworxVolume": _source(always("volumeID"), _FS, _READ_ONLY),
    "scaleIO": _source(
        always("gateway"),
        always("system"),
        always("secretRef", _source(optional("name"))),
        optional("sslEnabled", BOOL),
        optional("protectionDomain"),
        optional("storagePool"),
        optional("storageMode"),
        optional("volumeName"),
        _FS,
        _READ_ONLY,
    ),
    "storageos": _source(optional("volumeName"), optional("volumeNamespace"), _FS, _READ_ONLY, _SECRET),
    "csi": _source(
        always("driver"),
        optional("readOnly", pointer(BOOL)),
        optional("fsType", pointer(STRING)),
        optional("volumeAttributes", _TEXTS),
        optional("nodePublishSecretRef", _source(optional("name"))),
    ),
    "ephemeral": _source(optional("volumeClaimTemplate", _CLAIM_TEMPLATE)),
    "image": _source(optional("reference"), optional("pullPolicy")),
}
VOLUME: Final = struct(always("name"), *(optional(name, go_type) for name, go_type in VOLUME_SOURCES.items()))

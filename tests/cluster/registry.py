"""The nodes' image registry: a private docker-registry that replaces all public registries."""

import http.client
import json
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from tests.cluster import images, packages
from tests.cluster.errors import ClusterError
from tests.cluster.images import Image
from tests.cluster.run import Run

PROCESS = "docker-registry"


class Registry:
    """A registry over plain HTTP at `address` (host:port)."""

    def __init__(self, address: str) -> None:
        self.address = address

    @classmethod
    def launch(cls, run: Run, address: str) -> "Registry":
        """Start a registry as part of `run`, with images in the run's folder, without waiting for it."""
        config = {
            "version": "0.1",
            "log": {"level": "warn"},
            "storage": {"filesystem": {"rootdirectory": str(run.directory / "registry")}, "delete": {"enabled": True}},
            "http": {"addr": address},
        }
        path = run.directory / "registry.json"
        path.write_text(json.dumps(config))
        run.start(PROCESS, [packages.program(packages.REGISTRY), "serve", path])
        return cls(address)

    def is_ready(self) -> bool:
        try:
            connection = http.client.HTTPConnection(self.address, timeout=5)
            connection.request("GET", "/v2/")
            return connection.getresponse().status == 200
        except OSError:
            return False

    def add(self, *added: Image | str) -> None:
        """Build these images and push them under the names that Pods use."""
        _Upload(self.address).push(image if isinstance(image, Image) else Image(image) for image in added)

    def add_layout(self, reference: str, layout: Path) -> None:
        """Push the only image of an OCI layout under the name that Pods use."""
        blobs = layout / "blobs"
        manifest = _file_of(
            blobs, json.loads((layout / "index.json").read_text())["manifests"][0]["digest"]
        ).read_bytes()
        content = json.loads(manifest)
        parts = (_file_of(blobs, part["digest"]).read_bytes() for part in [content["config"], *content["layers"]])
        _Upload(self.address).push_built(Image(reference), manifest, parts)


def _file_of(blobs: Path, digest: str) -> Path:
    return blobs / digest.replace(":", "/")


class _Upload:
    """One connection for pushing images to a registry."""

    def __init__(self, address: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=120)
        self._holders: dict[str, str] = {}  # digest of a blob → a repository that has it

    def push(self, pushed: Iterable[Image]) -> None:
        busybox = packages.program(packages.BUSYBOX)
        for image in pushed:
            built = images.build(image, busybox)
            self.push_built(image, built.manifest, built.blobs)

    def push_built(self, image: Image, manifest: bytes, blobs: Iterable[bytes]) -> None:
        for blob in blobs:
            self._put_blob(image.repository, blob)
        path = f"/v2/{image.repository}/manifests/{image.tag}"
        self._request("PUT", path, manifest, images.MANIFEST_TYPE, expect={201})

    def _put_blob(self, repository: str, blob: bytes) -> None:
        digest = images.digest(blob)
        path = f"/v2/{repository}/blobs/uploads/"
        if holder := self._holders.get(digest):
            # The registry mounts the blob from another repository, without an upload.
            path += f"?mount={digest}&from={holder}"
        status, location = self._request("POST", path, b"", expect={201, 202})
        if status == 202:
            target = urlsplit(location)
            query = f"{target.query}&digest={digest}" if target.query else f"digest={digest}"
            self._request("PUT", f"{target.path}?{query}", blob, "application/octet-stream", expect={201})
        self._holders[digest] = repository

    def _request(
        self, method: str, path: str, body: bytes, content_type: str = "", *, expect: set[int]
    ) -> tuple[int, str]:
        headers = {"Content-Type": content_type} if content_type else {}
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        said = answer.read()
        if answer.status not in expect:
            raise ClusterError(f"registry: {method} {path}: {answer.status} {said.decode(errors='replace')}")
        return answer.status, answer.getheader("Location", "")

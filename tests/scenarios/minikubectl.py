"""The commands of kubectl that scenarios use, in Python, for machines without kubectl.

It takes the same arguments and prints what scenarios read: exit code, JSON, table cells, the server's messages.
"""

from __future__ import annotations

import argparse
import base64
import json
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.deadline import Deadline


class Refused(Exception):
    """The API server rejected the request; the message is kubectl's."""


class MiniKubectl:
    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=authority)
        self._http = httpx.Client(base_url=cluster["server"], verify=context, trust_env=False, timeout=60)
        self._resources: list[dict[str, Any]] = []
        self._warnings: list[str] = []

    def close(self) -> None:
        self._http.close()

    def __call__(
        self, *arguments: str, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        self._warnings = []
        try:
            out, code, error = self._run(list(arguments), stdin or ""), 0, ""
        except Refused as refused:
            out, code, error = "", 1, f"{refused}\n"
        done = subprocess.CompletedProcess(arguments, code, out, "".join(self._warnings) + error)
        if check and code:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {error}")
        return done

    # ---- commands

    def _run(self, arguments: list[str], stdin: str) -> str:
        command, *rest = arguments
        parser = argparse.ArgumentParser(allow_abbrev=False)
        parser.add_argument("words", nargs="*")
        parser.add_argument("-n", dest="namespace", default="default")
        parser.add_argument("-f", dest="file")
        parser.add_argument("-o", dest="output", default="")
        parser.add_argument("-l", dest="selector", default="")
        for flag in (
            "--field-selector",
            "--grace-period",
            "--cascade",
            "--dry-run",
            "--raw",
            "--replicas",
            "--wait",
            "--pod-selector",
            "--subresource",
            "--timeout",
        ):
            parser.add_argument(flag, default="")
        parser.add_argument("-p", dest="patch", default="{}")
        parser.add_argument("--type", default="strategic")
        for flag in ("--force", "--ignore-not-found", "--no-headers", "--overwrite", "--server-side"):
            parser.add_argument(flag, action="store_true")
        options = parser.parse_intermixed_args(rest)
        done: str = getattr(self, f"_{command}")(options, stdin)
        return done

    def _apply(self, options: Any, stdin: str) -> str:
        out = ""
        for manifest in self._manifests(options, stdin):
            path = self._path_of(manifest, options.namespace)
            query = {"fieldManager": "kubectl", "force": "true", "fieldValidation": "Strict"}
            headers = {"Content-Type": "application/apply-patch+yaml"}
            self._send("PATCH", f"{path}/{manifest['metadata']['name']}", manifest, query, headers)
            out += f"{manifest['kind'].lower()}/{manifest['metadata']['name']} serverside-applied\n"
        return out

    def _create(self, options: Any, stdin: str) -> str:
        if options.raw:
            return self._send("POST", options.raw, json.loads(stdin)).text
        kind, *names = options.words
        manifest = {"metadata": {"name": names[-1]}}
        self._send("POST", self._collection(self._find(kind), options.namespace), manifest)
        return f"{kind}/{names[-1]} created\n"

    def _get(self, options: Any, _stdin: str) -> str:
        if options.raw:
            return self._send("GET", options.raw).text
        kind, *names = options.words
        path = self._collection(self._find(kind), options.namespace) + (f"/{names[0]}" if names else "")
        query = {"labelSelector": options.selector, "fieldSelector": options.field_selector}
        query = {key: value for key, value in query.items() if value}
        if options.output == "json":
            return self._send("GET", path, query=query).text
        table = self._send(
            "GET", path, query=query, headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        ).json()
        shown = [number for number, column in enumerate(table["columnDefinitions"]) if not column.get("priority")]
        return "".join("   ".join(str(row["cells"][n]) for n in shown) + "\n" for row in table["rows"])

    def _delete(self, options: Any, _stdin: str) -> str:
        body: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        if options.raw:
            self._send("DELETE", options.raw)
            return ""
        if options.grace_period:
            body["gracePeriodSeconds"] = int(options.grace_period)
        if options.cascade:
            body["propagationPolicy"] = options.cascade.capitalize()
        if options.dry_run:
            body["dryRun"] = ["All"]
        kind, *names = options.words
        collection = self._collection(self._find(kind), options.namespace)
        if not names:
            found = self._send("GET", collection, query={"labelSelector": options.selector}).json()
            names = [one["metadata"]["name"] for one in found["items"]]
        failed: list[str] = []
        for name in names:
            try:
                answer = self._send("DELETE", f"{collection}/{name}", body).json()
            except Refused as refused:
                if not (options.ignore_not_found and "(NotFound)" in str(refused)):
                    failed.append(str(refused))
                continue
            if options.wait != "false" and not options.dry_run:
                uid = answer["details"]["uid"] if answer["kind"] == "Status" else answer["metadata"]["uid"]
                self._until_gone(f"{collection}/{name}", uid)
        if failed:
            raise Refused("\n".join(failed))
        return ""

    def _label(self, options: Any, _stdin: str, field: str = "labels") -> str:
        kind, name, *pairs = options.words
        values = {pair[:-1] if pair.endswith("-") else pair.partition("=")[0]: None for pair in pairs}
        values |= {pair.partition("=")[0]: pair.partition("=")[2] for pair in pairs if "=" in pair}
        self._change(self._find(kind), options.namespace, name, {"metadata": {field: values}})
        return ""

    def _annotate(self, options: Any, stdin: str) -> str:
        return self._label(options, stdin, "annotations")

    def _patch(self, options: Any, _stdin: str) -> str:
        kind, name = options.words
        how = "strategic-merge" if options.type == "strategic" else options.type
        path = f"{name}/{options.subresource}" if options.subresource else name
        self._change(self._find(kind), options.namespace, path, json.loads(options.patch), how)
        return f"{kind}/{name} patched\n"

    def _scale(self, options: Any, _stdin: str) -> str:
        kind, name = options.words
        body = {"spec": {"replicas": int(options.replicas)}}
        self._change(self._find(kind), options.namespace, f"{name}/scale", body)
        return ""

    def _cordon(self, options: Any, _stdin: str, unschedulable: bool = True) -> str:
        self._change(self._find("node"), "", options.words[0], {"spec": {"unschedulable": unschedulable}})
        return ""

    def _uncordon(self, options: Any, stdin: str) -> str:
        return self._cordon(options, stdin, unschedulable=False)

    def _drain(self, options: Any, stdin: str) -> str:
        """Evict like kubectl: retry on "too many requests" until all Pods are deleted."""
        self._cordon(options, stdin)
        where = {"labelSelector": options.pod_selector, "fieldSelector": f"spec.nodeName={options.words[0]}"}
        for pod in self._send("GET", "/api/v1/pods", query=where).json()["items"]:
            metadata = pod["metadata"]
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": metadata["name"]}}
            deadline = Deadline(60)
            while True:
                try:
                    self._send("POST", f"{path}/eviction", eviction)
                    break
                except Refused as refused:
                    if "TooManyRequests" not in str(refused) or deadline.passed():
                        raise
                    self._warnings.append(f"{refused}\n")
                    time.sleep(0.5)
            self._until_gone(path, metadata["uid"])
        return f"node/{options.words[0]} drained\n"

    # ---- how

    def _manifests(self, options: Any, stdin: str) -> list[dict[str, Any]]:
        text = stdin if options.file == "-" else Path(options.file).read_text()
        return [one for one in yaml.safe_load_all(text) if one]

    def _path_of(self, manifest: dict[str, Any], namespace: str) -> str:
        group, _, version = manifest["apiVersion"].rpartition("/")
        resource = self._find(manifest["kind"], group, version)
        return self._collection(resource, manifest["metadata"].get("namespace", namespace))

    def _collection(self, resource: dict[str, Any], namespace: str) -> str:
        root = (
            f"/apis/{resource['group']}/{resource['version']}" if resource["group"] else f"/api/{resource['version']}"
        )
        return (
            f"{root}/namespaces/{namespace}/{resource['name']}"
            if resource["namespaced"]
            else f"{root}/{resource['name']}"
        )

    def _find(self, word: str, group: str | None = None, version: str = "") -> dict[str, Any]:
        """Return the resource of a word as typed: kind, plural, singular, short name, or plural.version.group."""
        name, *rest = word.lower().split(".", 2)
        if rest and group is None:
            version, group = (rest[0], rest[1]) if len(rest) == 2 and rest[0].startswith("v") else ("", ".".join(rest))
        for fresh in (False, True):
            if fresh or not self._resources:
                self._resources = self._discover()
            for one in self._resources:
                words = {one["name"], one["kind"].lower(), one.get("singularName"), *one.get("shortNames", ())}
                fits = name in words and (group is None or one["group"] == group)
                if fits and (not version or one["version"] == version):
                    return one
        raise Refused(f'error: the server doesn\'t have a resource type "{word}"')

    def _discover(self) -> list[dict[str, Any]]:
        found = []
        versions = [("", "v1")]
        for group in self._send("GET", "/apis").json()["groups"]:
            preferred = group["preferredVersion"]["version"]
            others = [one["version"] for one in group["versions"] if one["version"] != preferred]
            versions += [(group["name"], one) for one in (preferred, *others)]
        for group_name, version in versions:
            path = f"/apis/{group_name}/{version}" if group_name else f"/api/{version}"
            for one in self._send("GET", path).json()["resources"]:
                if "/" not in one["name"]:
                    found.append({**one, "group": group_name, "version": version})
        return found

    def _change(self, resource: dict[str, Any], namespace: str, name: str, body: Any, how: str = "merge") -> None:
        headers = {"Content-Type": f"application/{how}-patch+json"}
        self._send("PATCH", f"{self._collection(resource, namespace)}/{name}", body, headers=headers)

    def _until_gone(self, path: str, uid: str) -> None:
        """Wait until the object is deleted or replaced by another of the same name."""
        deadline = Deadline(60)
        while not deadline.passed():
            try:
                if self._send("GET", path).json()["metadata"]["uid"] != uid:
                    return
            except Refused as refused:
                if "(NotFound)" in str(refused):
                    return
                raise
            time.sleep(0.05)
        raise Refused(f"error: timed out waiting for the condition on {path}")

    def _send(
        self, method: str, path: str, body: Any = None, query: Any = None, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        content = json.dumps(body) if body is not None else None
        sent = {"Content-Type": "application/json", **(headers or {})}
        answer = self._http.request(method, path, content=content, params=query, headers=sent)
        for warning in answer.headers.get_list("Warning"):
            self._warnings.append(f"Warning: {json.loads(warning.partition(' - ')[2])}\n")
        if answer.is_success:
            return answer
        status = answer.json()
        raise Refused(f"Error from server ({status.get('reason', answer.status_code)}): {status.get('message')}")

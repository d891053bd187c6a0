"""Manifests: YAML as kubectl reads it, errors with file and line."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.manager.manifests import ManifestError, manifest_files, parse_manifests, read_manifests


def test_a_folder_is_read_without_hidden_files_and_a_mounted_config_map_once(tmp_path: Path) -> None:
    hidden = tmp_path / "..2026_11_23"
    for folder in (hidden, tmp_path / ".venv" / "lib", tmp_path / "below"):
        folder.mkdir(parents=True)
        (folder / "a.yaml").write_text("kind: A", "utf-8")
    (tmp_path / "..data").symlink_to(hidden)
    (tmp_path / "b.yml").symlink_to(Path("..data", "a.yaml"))
    (tmp_path / ".c.json").write_text("{}", "utf-8")
    (tmp_path / "notes.txt").write_text("", "utf-8")
    assert [str(path.relative_to(tmp_path)) for path in manifest_files(tmp_path)] == ["b.yml", "below/a.yaml"]


def test_documents_lists_and_json_are_objects() -> None:
    text = '---\n# nothing\n---\nkind: A\n---\nkind: List\nitems:\n- kind: B\n- {kind: C}\n---\n{"kind": "D"}\n'
    assert [manifest.kind for manifest in parse_manifests(text, "f")] == ["A", "B", "C", "D"]


def test_scalars_parse_like_json() -> None:
    text = """
kind: X
octal: 0644
hex: 0x1F
exponent: 1e3
float: 1.5
negative: -3
boolean: yes
nothing: ~
date: 2020-01-01
ports: 80:80
version: 1.2.3
quoted: "0644"
1: key
on: key
"""
    assert parse_manifests(text, "f")[0].object == {
        "kind": "X",
        "octal": 0o644,
        "hex": 31,
        "exponent": 1000.0,
        "float": 1.5,
        "negative": -3,
        "boolean": True,
        "nothing": None,
        "date": "2020-01-01",
        "ports": "80:80",
        "version": "1.2.3",
        "quoted": "0644",
        "1": "key",
        "on": "key",
    }


def test_a_field_has_its_line() -> None:
    text = "# a comment\nkind: Pod\nspec:\n  containers:\n  - name: a\n    image: x\n  - name: b\n    env: []\n"
    manifest = parse_manifests(text, "pod.yaml")[0]
    assert manifest.at() == "pod.yaml:2"
    assert manifest.at("spec.containers[1].name") == "pod.yaml:7"
    assert manifest.at("spec.containers[0].image") == "pod.yaml:6"
    # A missing field is reported where it belongs.
    assert manifest.at("spec.containers[1].image") == "pod.yaml:7"
    assert manifest.at("spec.nothing[5].at.all") == "pod.yaml:3"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "f:2: is not YAML: "),
        ("a: 1\na: 2", "f:2: duplicate key 'a'"),
        ("- 1", "f:1: expected an object with apiVersion and kind"),
        ("just text", "f:1: expected an object"),
        ("kind: List\nitems: [1]", "f:2: expected an object"),
        ("x: &a [*a]", "f:1: an alias refers to its own ancestor"),
        ("a: *b", "f:1: is not YAML: found undefined alias"),
        ("a\n\x00", "f:2: is not YAML: character U+0000 is not allowed"),
        ("a: !!python/object/apply:os.system [ls]", "f:1: is not YAML: could not determine a constructor"),
        ("[" * 100_000, "f: is nested deeper than 100 levels"),
        ("- " * 100_000, "f: is nested deeper than 100 levels"),
        ("? [a]\n: b", "f:1: a key must be a string"),
    ],
)
def test_an_error_has_file_and_line(text: str, message: str) -> None:
    with pytest.raises(ManifestError) as refused:
        parse_manifests(text, "f")
    assert str(refused.value).startswith(message)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"absent.yaml: cannot be read: No such file or directory"):
        read_manifests(tmp_path / "absent.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"kind: \xff")
    with pytest.raises(ManifestError, match=r"binary.yaml: is not UTF-8: byte 0xff at offset 6"):
        read_manifests(tmp_path / "binary.yaml")


@given(st.text(max_size=60))
def test_any_text_is_objects_or_an_error(text: str) -> None:
    with contextlib.suppress(ManifestError):
        assert all(isinstance(manifest.object, dict) for manifest in parse_manifests(text, "f"))

"""Locked versions against advisories."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.advisories import ROOT, found, locked, main, records


def advisory(name: str = "Some.Package", **affected: Any) -> dict[str, Any]:
    package = {"ecosystem": "PyPI", "name": name}
    return {"id": "PYSEC-1", "summary": "bad", "affected": [{"package": package, **affected}]}


def within(*events: dict[str, str]) -> dict[str, Any]:
    return advisory(ranges=[{"type": "ECOSYSTEM", "events": list(events)}])


@pytest.mark.parametrize(
    ("record", "concerned"),
    [
        (advisory(versions=["1.9", "1.10"]), True),
        (advisory(versions=["1.9"]), False),
        (within({"introduced": "0"}), True),
        (within({"introduced": "0"}, {"fixed": "1.9"}), False),
        (within({"introduced": "0"}, {"fixed": "1.11"}), True),
        (within({"introduced": "1.10"}, {"fixed": "1.11"}), True),
        (within({"introduced": "0"}, {"last_affected": "1.10"}), True),
        (within({"introduced": "0"}, {"last_affected": "1.9"}), False),
        (within({"introduced": "0"}, {"fixed": "1.2"}, {"introduced": "1.9.5"}), True),
        ({**advisory(versions=["1.10"]), "withdrawn": "2020-01-01T00:00:00Z"}, False),
        (advisory("other", versions=["1.10"]), False),
    ],
)
def test_an_advisory_affects_the_versions_it_names(record: dict[str, Any], concerned: bool) -> None:
    packages = locked("some-package==1.10 \\\n    --hash=sha256:00\nsecond==2 ; python_version < '3.12'\n")
    assert packages == {"some-package": "1.10", "second": "2"}
    assert found(packages, [record]) == (["some-package 1.10: PYSEC-1 bad"] if concerned else [])


def test_locked_versions_are_checked_against_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "all.zip"
    with zipfile.ZipFile(copy, "w") as archive:
        archive.writestr(
            "PYSEC-1.json", json.dumps(advisory("msgspec", ranges=within({"introduced": "0"})["affected"][0]["ranges"]))
        )
    assert len(list(records(copy))) == 1
    monkeypatch.setenv("OSV_DATABASE", str(copy))
    assert main() == 1
    assert capsys.readouterr().out.startswith(
        f"msgspec {locked((ROOT / 'requirements.lock').read_text())['msgspec']}: "
    )
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "PYSEC-2.json").write_text(json.dumps(advisory("other", versions=["1"])))
    monkeypatch.setenv("OSV_DATABASE", str(folder))
    assert main() == 0
    assert "1 advisories, none affected" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("database", "unchecked", "code"),
    [("", "", 1), ("", "allow", 0), ("missing", "allow", 1), ("empty", "allow", 1)],
    ids=["no copy", "no copy is allowed", "a copy that is missing", "a copy without advisories"],
)
def test_a_check_without_advisories_fails_unless_allowed(
    database: str,
    unchecked: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("OSV_DATABASE", str(tmp_path / database) if database else "")
    monkeypatch.setenv("ADVISORIES_UNCHECKED", unchecked)
    assert main() == code
    assert "advisories: not checked: " in capsys.readouterr().out

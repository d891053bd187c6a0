"""The operator's policies: YAML files checked against a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel


class PolicyError(ValueError):
    """A policy file cannot be used. The message names the file, the field and the fix."""


#: Configuration of the models: fields are snake_case here and camelCase in YAML, and unknown fields are errors.
POLICY: Final = ConfigDict(extra="forbid", frozen=True, strict=True, alias_generator=to_camel)
M = TypeVar("M", bound=BaseModel)


def read_policy(path: Path) -> str:
    """Return the text of a file. Raises PolicyError."""
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise PolicyError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise PolicyError(f"{path}: is not UTF-8 at byte {error.start}") from None


def parse_policy(text: str, source: str, model: type[M]) -> M:
    """Return the content of a YAML document. ``source`` is its name in messages. Raises PolicyError."""
    try:
        document = yaml.safe_load(text)
        return model.model_validate({} if document is None else document)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise PolicyError(f"{source}{line}: is not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise PolicyError(f"{source}: is not YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        raise PolicyError(f"{source}: {'; '.join(map(_described, error.errors()))}") from None


def _described(detail: Mapping[str, Any]) -> str:
    field = ".".join(str(part) for part in detail["loc"]) or "document"
    if detail["type"] == "extra_forbidden":
        return f"{field}: unknown field"
    if detail["type"] == "missing":
        return f"{field}: is required"
    return f"{field}: {detail['msg']}, got {detail['input']!r:.100}"

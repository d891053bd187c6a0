"""Validate names, labels and environment variable names by Kubernetes' rules, with its exact error messages.

Every function takes one string and returns a list of messages, empty if the string is valid. The messages do not name
the field: callers wrap them in :mod:`app.kube.fielderrors`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from app.kube.fielderrors import FieldError, Path, invalid, too_long

_NAME_CHAR = "[A-Za-z0-9]"
_NAME_EXT_CHAR = "[-A-Za-z0-9_.]"
_QUALIFIED_NAME = f"({_NAME_CHAR}{_NAME_EXT_CHAR}*)?{_NAME_CHAR}"
_QUALIFIED_NAME_MESSAGE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_LABEL_VALUE = f"({_QUALIFIED_NAME})?"
_LABEL_VALUE_MESSAGE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)
_DNS1123_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS1123_LABEL_MESSAGE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)
_DNS1123_SUBDOMAIN = _DNS1123_LABEL + r"(\." + _DNS1123_LABEL + ")*"
_DNS1123_SUBDOMAIN_MESSAGE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
_DNS1035_LABEL = "[a-z]([-a-z0-9]*[a-z0-9])?"
_DNS1035_LABEL_MESSAGE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
    "start with an alphabetic character, and end with an alphanumeric character"
)
_CONFIG_MAP_KEY = "[-._a-zA-Z0-9]+"
_CONFIG_MAP_KEY_MESSAGE = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
_PERCENT = "[0-9]+%"
_PERCENT_MESSAGE = "a valid percent string must be a numeric string followed by an ending '%'"
_ENV_NAME_MESSAGE = "a valid environment variable name must consist only of printable ASCII characters other than '='"

_qualified_name = re.compile(_QUALIFIED_NAME).fullmatch
_label_value = re.compile(_LABEL_VALUE).fullmatch
_dns1123_label = re.compile(_DNS1123_LABEL).fullmatch
_dns1123_subdomain = re.compile(_DNS1123_SUBDOMAIN).fullmatch
_dns1035_label = re.compile(_DNS1035_LABEL).fullmatch
_config_map_key = re.compile(_CONFIG_MAP_KEY).fullmatch
_percent = re.compile(_PERCENT).fullmatch
_relaxed_env_name = re.compile(r"[ -<>-~]+").fullmatch
_port_name_chars = re.compile("[-a-z0-9]+").fullmatch
_port_name_letter = re.compile("[a-z]").search

LABEL_VALUE_MAX_LENGTH = 63
QUALIFIED_NAME_MAX_LENGTH = 63
DNS1123_LABEL_MAX_LENGTH = 63
DNS1123_SUBDOMAIN_MAX_LENGTH = 253
DNS1035_LABEL_MAX_LENGTH = 63
TOTAL_ANNOTATION_SIZE_LIMIT = 256 * (1 << 10)


def byte_length(text: str) -> int:
    """Return the length of ``text`` in UTF-8 bytes, the unit of Kubernetes' limits."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def max_len_message(length: int) -> str:
    """Return the error message for a string longer than ``length`` bytes."""
    return f"must be no more than {length} characters"


def regex_message(message: str, pattern: str, *examples: str) -> str:
    """Return the error message for a string that does not match ``pattern``, with valid examples."""
    if not examples:
        return f"{message} (regex used for validation is '{pattern}')"
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{message} (e.g. {shown}regex used for validation is '{pattern}')"


def is_qualified_name(text: str) -> list[str]:
    """Validate label and annotation keys, and resource and finalizer names: ``[prefix/]name``."""
    parts = text.split("/")
    if len(parts) > 2:
        return [
            f"a qualified name {_named()} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    messages: list[str] = []
    if len(parts) == 2:
        if not parts[0]:
            messages.append("prefix part must be non-empty")
        else:
            messages.extend(f"prefix part {message}" for message in is_dns1123_subdomain(parts[0]))
    name = parts[-1]
    if not name:
        messages.append("name part must be non-empty")
    elif byte_length(name) > QUALIFIED_NAME_MAX_LENGTH:
        messages.append(f"name part {max_len_message(QUALIFIED_NAME_MAX_LENGTH)}")
    if not _qualified_name(name):
        messages.append(f"name part {_named()}")
    return messages


def _named() -> str:
    return regex_message(_QUALIFIED_NAME_MESSAGE, _QUALIFIED_NAME, "MyName", "my.name", "123-abc")


def is_label_value(text: str) -> list[str]:
    """Validate the value of a label, which may be empty."""
    messages = []
    if byte_length(text) > LABEL_VALUE_MAX_LENGTH:
        messages.append(max_len_message(LABEL_VALUE_MAX_LENGTH))
    if not _label_value(text):
        messages.append(regex_message(_LABEL_VALUE_MESSAGE, _LABEL_VALUE, "MyValue", "my_value", "12345"))
    return messages


def is_dns1123_label(text: str) -> list[str]:
    """Validate names of containers, volumes and namespaces."""
    messages = []
    if byte_length(text) > DNS1123_LABEL_MAX_LENGTH:
        messages.append(max_len_message(DNS1123_LABEL_MAX_LENGTH))
    if not _dns1123_label(text):
        if _dns1123_subdomain(text):
            messages.append("must not contain dots")
        else:
            messages.append(regex_message(_DNS1123_LABEL_MESSAGE, _DNS1123_LABEL, "my-name", "123-abc"))
    return messages


def is_dns1123_subdomain(text: str) -> list[str]:
    """Validate names of most objects."""
    messages = []
    if byte_length(text) > DNS1123_SUBDOMAIN_MAX_LENGTH:
        messages.append(max_len_message(DNS1123_SUBDOMAIN_MAX_LENGTH))
    if not _dns1123_subdomain(text):
        messages.append(regex_message(_DNS1123_SUBDOMAIN_MESSAGE, _DNS1123_SUBDOMAIN, "example.com"))
    return messages


def is_dns1035_label(text: str) -> list[str]:
    """Validate names of Services."""
    messages = []
    if byte_length(text) > DNS1035_LABEL_MAX_LENGTH:
        messages.append(max_len_message(DNS1035_LABEL_MAX_LENGTH))
    if not _dns1035_label(text):
        messages.append(regex_message(_DNS1035_LABEL_MESSAGE, _DNS1035_LABEL, "my-name", "abc-123"))
    return messages


def is_env_var_name(text: str) -> list[str]:
    """Validate names of environment variables according to the relaxed rule of Kubernetes 1.32."""
    if not text:
        return ["environment variable name must be non-empty"]
    return [] if _relaxed_env_name(text) else [_ENV_NAME_MESSAGE]


def is_config_map_key(text: str) -> list[str]:
    """Validate keys of a ConfigMap or Secret."""
    messages = []
    if byte_length(text) > DNS1123_SUBDOMAIN_MAX_LENGTH:
        messages.append(max_len_message(DNS1123_SUBDOMAIN_MAX_LENGTH))
    if not _config_map_key(text):
        messages.append(regex_message(_CONFIG_MAP_KEY_MESSAGE, _CONFIG_MAP_KEY, "key.name", "KEY_NAME", "key-name"))
    if text in (".", ".."):
        messages.append(f"must not be '{text}'")
    elif text.startswith(".."):
        messages.append("must not start with '..'")
    return messages


def is_percent(text: str) -> list[str]:
    """Validate percentages: digits and one percent sign."""
    return [] if _percent(text) else [regex_message(_PERCENT_MESSAGE, _PERCENT, "1%", "93%")]


def is_port_number(port: int) -> list[str]:
    """Validate port numbers: 1 to 65535."""
    return [] if 1 <= port <= 65535 else ["must be between 1 and 65535, inclusive"]


def is_port_name(text: str) -> list[str]:
    """Validate port names: at most 15 characters from ``[-a-z0-9]``, with a letter, no ``--`` and no outer hyphen."""
    messages = []
    if byte_length(text) > 15:
        messages.append(max_len_message(15))
    if not _port_name_chars(text):
        messages.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not _port_name_letter(text):
        messages.append("must contain at least one letter (a-z)")
    if "--" in text:
        messages.append("must not contain consecutive hyphens")
    if text.startswith("-") or text.endswith("-"):
        messages.append("must not begin or end with a hyphen")
    return messages


def validate_labels(labels: Mapping[str, str], path: Path) -> list[FieldError]:
    """Validate a map of labels in order of their keys. Errors in keys and in values are reported at ``path``."""
    errors: list[FieldError] = []
    for key in sorted(labels):
        errors.extend(invalid(path, key, message) for message in is_qualified_name(key))
        errors.extend(invalid(path, labels[key], message) for message in is_label_value(labels[key]))
    return errors


def validate_annotations(annotations: Mapping[str, str], path: Path) -> list[FieldError]:
    """Validate a map of annotations: keys are qualified names in any case, and the total size is at most 256 KiB."""
    errors: list[FieldError] = []
    for key in sorted(annotations):
        # Annotation keys are validated in lower case, for compatibility with old objects.
        errors.extend(invalid(path, key, message) for message in is_qualified_name(key.lower()))
    total = sum(byte_length(key) + byte_length(value) for key, value in annotations.items())
    if total > TOTAL_ANNOTATION_SIZE_LIMIT:
        errors.append(too_long(path, TOTAL_ANNOTATION_SIZE_LIMIT))
    return errors

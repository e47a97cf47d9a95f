"""The base of every group of settings: typed, immutable, and refused by name when wrong; and the YAML they come in."""

import reprlib
from collections import Counter
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from acpl.errors import UserError

MOST_YAML = 2**20
"""Bytes; a configuration takes a few thousand."""
DEEPEST_YAML = 20
LARGEST_NUMBER = 2**63 - 1
Value = TypeVar("Value")


def at_share(values: Mapping[float, Value], fraction: float) -> Value:
    """Of values by share of labels, that of the least share which covers this one; the last where none does."""
    return values[min((share for share in values if share >= fraction), default=max(values))]


class Section(BaseModel):
    """Settings whose unknown keys and impossible values are refused in one sentence."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Values checked against this class; UserError names the first that is wrong."""
        try:
            parsed = cls.model_validate(dict(values))
        except ValidationError as error:
            raise UserError(_sentence(error.errors()[0], cls.model_fields)) from None
        for name, value in parsed:
            if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
                raise UserError(f"{name} should be at most {LARGEST_NUMBER}, but it is {_short(value)}")
        return parsed


def read_yaml(file: Path) -> dict[str, Any]:
    """The names and values of a YAML file: plain data, no tags, no aliases, no name twice, and not too much of it."""
    try:
        with file.open("rb") as stream:
            content = stream.read(MOST_YAML + 1)
    except OSError as error:
        raise UserError(f"{file} could not be read: {error.strerror}") from None
    if len(content) > MOST_YAML:
        raise UserError(f"{file} is longer than the {MOST_YAML:,} bytes of settings that are read")
    try:
        values = _PlainLoader(content.decode("utf-8-sig")).get_single_data()
    except UnicodeDecodeError:
        raise UserError(f"{file} is not UTF-8 text") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # PyYAML lets a number's or a date's own error through
        raise UserError(f"{file} is not valid YAML: {' '.join(str(error).split())[:300]}") from None
    if not isinstance(values, dict):
        raise UserError(f"{file} should hold names and values, but it holds {type(values).__name__}")
    for name in values:
        if not isinstance(name, str):
            raise UserError(f"{file}: {_short(name)} should be the name of a setting, but it is {type(name).__name__}")
    return values


class _PlainLoader(yaml.SafeLoader):
    """What a configuration needs of YAML; an alias of an alias of an alias would be gigabytes once it is shown."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("anchors with aliases (&name, *name) are not read")
        self.depth += 1
        if self.depth > DEEPEST_YAML:
            raise yaml.YAMLError(f"it is nested more than {DEEPEST_YAML} deep")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        for name, times in Counter(key.value for key, _ in node.value if isinstance(key.value, str)).items():
            if times > 1:
                raise yaml.YAMLError(f"'{name[:80]}' stands {times} times")
        return super().construct_mapping(node, deep=deep)


def unknown(kind: str, name: str, valid: Iterable[str]) -> UserError:
    """The refusal of a name that does not exist, with the nearest that does."""
    valid = sorted(valid)
    name = name[:200]
    close = get_close_matches(name, valid, n=1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'?" if close else f"there are: {', '.join(valid)}"
    return UserError(f"unknown {kind} '{name}'; {hint}")


def _sentence(detail: ErrorDetails, fields: Iterable[str]) -> str:
    # What follows the field's name is pydantic's own word for the branch of a union it tried.
    name = str(detail["loc"][0])[:200] if detail["loc"] else ""
    if detail["type"] == "extra_forbidden":
        return str(unknown("setting", name, fields))
    if detail["type"] == "value_error":
        return f"{name}: {detail['ctx']['error']}" if name else str(detail["ctx"]["error"])
    rule = detail["msg"].removeprefix("Input ").strip()
    return f"{name} {rule}, but it is {_short(detail['input'])}"


def _short(value: object) -> str:
    """A value as it is written, its middle left out where it is long."""
    try:
        return _brief.repr(value)
    except ValueError:  # Python does not write out numbers of thousands of digits
        return "a number of thousands of digits"


_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = _brief.maxlong = 120

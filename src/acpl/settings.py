"""The base of every group of settings: typed, immutable, and refused by name when wrong."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from acpl.errors import UserError


class Section(BaseModel):
    """Settings whose unknown keys and impossible values are refused in one sentence."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True)

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Values checked against this class; UserError names the first that is wrong."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise UserError(_sentence(error.errors()[0], cls.model_fields)) from None


def unknown(kind: str, name: str, valid: Iterable[str]) -> UserError:
    """The refusal of a name that does not exist, with the nearest that does."""
    valid = sorted(valid)
    close = get_close_matches(name, valid, n=1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'?" if close else f"there are: {', '.join(valid)}"
    return UserError(f"unknown {kind} '{name}'; {hint}")


def _sentence(detail: ErrorDetails, fields: Iterable[str]) -> str:
    # What follows the field's name is pydantic's own word for the branch of a union it tried.
    name = str(detail["loc"][0]) if detail["loc"] else ""
    if detail["type"] == "extra_forbidden":
        return str(unknown("setting", name, fields))
    if detail["type"] == "value_error":
        return f"{name}: {detail['ctx']['error']}" if name else str(detail["ctx"]["error"])
    rule = detail["msg"].removeprefix("Input ").strip()
    return f"{name} {rule}, but it is {detail['input']!r}"

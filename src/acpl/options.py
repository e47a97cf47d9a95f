"""Options of commands: built from the configuration class, so that shell and Python cannot drift apart."""

from collections.abc import Callable, Iterable, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from acpl import completion as complete
from acpl.config import Config
from acpl.errors import UserError


def flag(name: str) -> str:
    """A setting's name as the shell has it."""
    return "--" + name.replace("_", "-")


def extra_options(arguments: Sequence[str]) -> dict[str, str]:
    """Options that are no fields of ``Config``: settings of the method, as ``--k 20``, ``--k=20`` or ``--no-x``."""
    given: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise UserError(f"unexpected argument '{word}'; options start with --")
        name, equals, value = word[2:].partition("=")
        if not equals:
            if rest and not rest[0].startswith("--"):
                value = rest.pop(0)
            elif name.startswith("no-"):
                name, value = name.removeprefix("no-"), "false"
            else:
                value = "true"
        given[name.replace("-", "_")] = value
    return given


def _option(name: str, field: FieldInfo) -> Parameter:
    """A field of ``Config`` as an option; what is not given stays None, so that preset and file count."""
    group = field.json_schema_extra["group"] if isinstance(field.json_schema_extra, dict) else None
    is_switch = field.annotation is bool
    help_text = (field.description or "").replace("[", "\\[")
    if field.annotation is not None and get_origin(field.annotation) is Literal:
        help_text += f" ({' | '.join(map(str, get_args(field.annotation)))})"
    declared = f"{flag(name)}/--no-{name.replace('_', '-')}" if is_switch else flag(name)
    option = typer.Option(
        declared,
        help=help_text,
        rich_help_panel=str(group),
        show_default=False,
        metavar=None if is_switch else _metavar(field.annotation),
        autocompletion=complete.of_setting(name, field.annotation),
    )
    kind: Any = bool | None if is_switch else str | None
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])


def _metavar(annotation: Any) -> str:
    options = [part for part in get_args(annotation) if part is not NoneType]
    plain = options[0] if get_origin(annotation) in (UnionType, Union) and options else annotation
    if get_origin(plain) is tuple:
        return ",".join("NAME" if part is str else "NUMBER" for part in get_args(plain) if part is not Ellipsis)
    return {int: "INTEGER", float: "NUMBER", str: "TEXT", Path: "PATH"}.get(plain, "NAME")


def with_options(
    function: Callable[..., None], first: Sequence[Parameter], names: Iterable[str]
) -> Callable[..., None]:
    """``function`` as a command with options of its own and one for each of these fields of ``Config``."""

    def command(**given: Any) -> None:
        function(**given)

    parameters = [*first, *(_option(name, Config.model_fields[name]) for name in names)]
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__doc__ = function.__doc__
    command.__name__ = function.__name__.removeprefix("_")
    return command


def own(name: str, kind: Any, default: Any, text: str, words: Callable[[str], list[str]] | None = None) -> Parameter:
    """An option that is no field of ``Config``; ``words`` completes it."""
    option = typer.Option(f"--{name}", help=text, show_default=False, rich_help_panel="Run", autocompletion=words)
    return Parameter(
        name.replace("-", "_"), Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
    )


def fields(*groups: str) -> list[str]:
    """Fields of ``Config`` under these headings; all but the method's own settings where none is named."""
    found = {name: field.json_schema_extra for name, field in Config.model_fields.items() if name != "settings"}
    return [
        name for name, extra in found.items() if not groups or (isinstance(extra, dict) and extra["group"] in groups)
    ]

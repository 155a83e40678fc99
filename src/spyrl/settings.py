"""From mappings (YAML files, ``key=value`` words) to checked, frozen dataclasses, with errors that name the key."""

from __future__ import annotations

import ast
import dataclasses
import datetime
import difflib
import inspect
import itertools
import math
import textwrap
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pydantic
import yaml

from spyrl.errors import UsageError

T = TypeVar("T")


def build(kind: type[T], data: Mapping[str, Any], where: str) -> T:
    """Make a ``kind`` (a tree of standard dataclasses) of ``data``.

    Raises `UsageError` with ``where`` and the dotted key for an unknown key (naming the nearest), a wrong
    type or a value out of range.
    """
    known = _fields_by_key(kind, data, where, ())
    try:
        built = pydantic.TypeAdapter(kind).validate_python(known)
    except pydantic.ValidationError as error:
        raise UsageError("\n".join(_problem(kind, problem, where) for problem in error.errors())) from None
    _check_finite(plain(built), where, ())
    return built


def check_keys(kind: type, data: Mapping[str, Any], where: str) -> None:
    """Raise `UsageError` for a key of ``data`` that ``kind`` does not know; values are not looked at."""
    _fields_by_key(kind, data, where, ())


def plain(value: Any) -> Any:
    """The mapping that `build` makes this dataclass of again: only dicts, lists and scalars."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {_key(field.name): plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings laid over each other, later ones winning."""
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            below = result.get(key)
            if isinstance(value, Mapping):
                result[key] = merged(below if isinstance(below, Mapping) else {}, value)
            else:
                result[key] = value
    return result


def flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested mapping by dotted keys."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value}
    return found


def read_overrides(words: Sequence[str]) -> dict[str, Any]:
    """Read ``key=value`` words into a nested mapping; values are YAML scalars, lists or mappings."""
    result: dict[str, Any] = {}
    for word in words:
        key, separator, text = word.partition("=")
        if not separator or not key or any(not part for part in key.split(".")):
            raise UsageError(f"cannot read {word!r}: write a setting as key=value, for example training.iterations=10")
        try:
            value = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError):
            value = text  # a Windows path, a lone colon or a date that never was is still a string
        for part in reversed(key.split(".")):
            value = {part: value}
        result = merged(result, value)
    return result


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file that holds a mapping; errors name the file and the line."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read {path}: it is not UTF-8 text (byte {error.start})") from None
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UsageError(f"{path}{line}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that never was
        raise UsageError(f"{path}: not valid YAML: {error}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise UsageError(f"{path}: expected keys and values, found {type(data).__name__}")
    return data


def nearest(name: str, known: Iterable[str]) -> str:
    """A half-sentence that names what was probably meant, or lists what there is."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else "there is " + ", ".join(names)


def options(kind: type, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Every setting below ``kind`` as (dotted key, default, one-line description), in the order of the source."""
    described = _descriptions(kind)
    for field, _, inner in _fields(kind):
        key = prefix + _key(field.name)
        default = field.default
        if inner is not None and dataclasses.is_dataclass(default):
            yield from options(inner, key + ".")
        else:
            yield key, _shown(default), described.get(field.name, "")
            if inner is not None:
                yield from options(inner, key + ".")


def _shown(default: Any) -> str:
    if default is None:
        return "null"
    if default is dataclasses.MISSING:
        return ""
    return str(default).lower() if isinstance(default, bool) else str(plain(default))


def _key(name: str) -> str:
    """The key of a field: ``lambda_`` is written ``lambda``."""
    return name.rstrip("_")


def _fields(kind: type) -> Iterator[tuple[dataclasses.Field[Any], tuple[Any, ...], type | None]]:
    """Fields of a dataclass, each with the types it may hold and the dataclass among them, if there is one."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        inner = [candidate for candidate in kinds if dataclasses.is_dataclass(candidate)]
        yield field, kinds, typing.cast(type, inner[0]) if inner else None


def _fields_by_key(kind: type, data: Any, where: str, path: tuple[str, ...]) -> Any:
    """Check every key below ``data`` and turn keys into field names."""
    if not isinstance(data, Mapping):
        if dataclasses.is_dataclass(data):
            return data
        at = ".".join(path)
        raise UsageError(f"{where}: {at} takes settings below it ({at}.KEY=...), not {data!r}")
    fields = {_key(field.name): (field.name, kinds, inner) for field, kinds, inner in _fields(kind)}
    result = {}
    for key, value in data.items():
        if key not in fields:
            full = ".".join((*path, str(key)))
            raise UsageError(f"{where}: unknown key {full!r}; {nearest(str(key), fields)}")
        name, kinds, inner = fields[key]
        if inner is not None and value is not None:
            result[name] = _fields_by_key(inner, value, where, (*path, key))
        else:
            result[name] = _as_meant(value, kinds, where, (*path, key))
    return result


def _as_meant(value: Any, kinds: tuple[Any, ...], where: str, path: tuple[str, ...]) -> Any:
    """What a person meant: YAML takes some names for numbers and dates, and ``yes`` for a truth that Python would
    count as 1; and one name may stand for a list of one."""
    if isinstance(value, bool) and bool not in kinds and (int in kinds or float in kinds):
        raise UsageError(f"{where}: {'.'.join(path)} should be a number, not {value!r}")
    if isinstance(value, str) and str not in kinds and any(typing.get_origin(kind) is list for kind in kinds):
        return [value]
    if str in kinds and isinstance(value, int | float | datetime.date) and not isinstance(value, bool):
        return str(value)
    return value


def _check_finite(value: Any, where: str, path: tuple[str, ...]) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _check_finite(item, where, (*path, str(key)))
    elif isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{where}: {'.'.join(path)} should be a finite number, not {value}")


def _problem(kind: type, problem: Any, where: str) -> str:
    # Members of unions add their type's name to the path; keep only what are really keys.
    path: list[str] = []
    at: type | None = kind
    for part in problem["loc"]:
        fields = {field.name: inner for field, _, inner in _fields(at)} if at is not None else {}
        if part in fields or isinstance(part, int):
            path.append(_key(str(part)))
            at = fields.get(part)
    key = ".".join(path) or "settings"
    message = problem["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    message = message.split(", unable to")[0]
    given = problem["input"]
    if problem["type"] == "missing":
        return f"{where}: {key} is missing"
    if problem["type"] == "value_error":
        return f"{where}: {key}: {message}"
    return f"{where}: {key} should be {message}, not {given!r}"


def _descriptions(kind: type) -> dict[str, str]:
    """The strings written below the fields in the source."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    body = typing.cast(ast.ClassDef, tree.body[0]).body
    found = {}
    for field, text in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            found[typing.cast(ast.Name, field.target).id] = " ".join(str(text.value.value).split())
    return found

"""Strict configuration: frozen structs, TOML recipes and dotted overrides.

A recipe only says what differs from the defaults.  An unknown key or a wrong type is an error
that names the key, the value and what was expected; nothing is ignored and nothing is coerced.
What a field means is said once, in the docstring below it (`describe` reads it from there).
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import inspect as shape

from dreamgym.errors import ConfigError, unknown_name

S = TypeVar("S", bound=msgspec.Struct)

SECRET_KEYS = frozenset({"api_key", "token", "password", "authorization"})
"""Keys whose values are never written anywhere; compared whole, so `num_memory_tokens` stays."""
BLANK = "***"

_USERINFO = re.compile(r"(?<=://)[^/\s@]+(?=@)")
_AUTH = re.compile(
    r"(?i)(\bbearer\s+|\b(?:x-)?(?:api[_-]?key|authorization|password|token)['\"]?\s*[=:]\s*['\"]?)"
    r"(?!bearer\b|basic\b|\*\*\*)[^\s'\",;&]{3,}"
)
_KEY = re.compile(r"\bsk-[A-Za-z0-9_-]{4,}")


class FieldDoc(msgspec.Struct, frozen=True, kw_only=True):
    """One configurable field: dotted path, type, default (as text) and its docstring."""

    path: str
    type: str
    default: str
    doc: str


def load_config(
    struct_type: type[S], toml_path: str | Path | None = None, overrides: Sequence[str] = ()
) -> S:
    """Return the struct built from its defaults, then the recipe, then the overrides.

    An override is `dotted.path=value`; the value is read as TOML where it is TOML (`1e-4`,
    `true`, `[1, 2]`), else as text; `none` empties an optional field.  Raises `ConfigError`.
    """
    data = _read_toml(Path(toml_path)) if toml_path is not None else {}
    root = shape.type_info(struct_type)
    _check_keys(data, root, "")
    for text in overrides:
        _apply_override(data, root, text)
    _check_keys(data, root, "")
    return build_config(struct_type, data)


def override(config: S, overrides: Sequence[str]) -> S:
    """Return a config with `dotted.path=value` overrides applied; see `load_config`."""
    if not overrides:
        return config
    data: dict[str, Any] = msgspec.to_builtins(config)
    root = shape.type_info(type(config))
    for text in overrides:
        _apply_override(data, root, text)
    return build_config(type(config), data)


def build_config(struct_type: type[S], data: Mapping[str, object]) -> S:
    """Return the struct for a plain dict (e.g. a stored `config.json`); raises `ConfigError`."""
    _check_keys(data, shape.type_info(struct_type), "")
    try:
        return msgspec.convert(data, struct_type)
    except msgspec.ValidationError as error:
        raise ConfigError(_explain(str(error), data)) from error


def dump_config(config: msgspec.Struct | Mapping[str, Any]) -> dict[str, Any]:
    """Return the config as plain JSON-able data with secrets blanked."""
    plain: dict[str, Any] = _blank(msgspec.to_builtins(config))
    return plain


def redact(text: str) -> str:
    """Return text without URL user information, bearer tokens and keys, for logs and records.

    >>> redact("GET https://me:pw@host/v1 failed, Authorization: Bearer abc123")
    'GET https://***@host/v1 failed, Authorization: Bearer ***'
    """
    text = _USERINFO.sub(BLANK, text)
    text = _AUTH.sub(lambda match: match.group(1) + BLANK, text)
    return _KEY.sub(BLANK, text)


def describe(struct_type: type[msgspec.Struct], prefix: str = "") -> Iterator[FieldDoc]:
    """Yield the fields of a config struct, nested structs included, in their order."""
    docs = _field_docstrings(struct_type)
    for field in msgspec.structs.fields(struct_type):
        path = f"{prefix}{field.name}"
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from describe(field.type, f"{path}.")
            continue
        name = field.type.__name__ if isinstance(field.type, type) else str(field.type)
        default = "required" if field.required else repr(_default(field))
        yield FieldDoc(path=path, type=name, default=default, doc=docs.get(field.name, ""))


def changed_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the dotted paths at which two dumped configs differ, sorted."""
    flat_old, flat_new = dict(_flatten(old, "")), dict(_flatten(new, ""))
    missing = object()
    paths = flat_old.keys() | flat_new.keys()
    return sorted(p for p in paths if flat_old.get(p, missing) != flat_new.get(p, missing))


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise ConfigError(f"recipe {str(path)!r} does not exist; give a TOML file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"recipe {str(path)!r} cannot be read as UTF-8 text: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"recipe {str(path)!r} is not valid TOML: {error}") from error


def _apply_override(data: dict[str, Any], root: shape.Type, override: str) -> None:
    path, separator, raw = override.partition("=")
    keys = path.strip().split(".")
    if not separator or not all(keys):
        raise ConfigError(f"override {override!r} is not of the form key.path=value")
    node, kind = data, root
    for depth, key in enumerate(keys[:-1]):
        kind = _field_type(kind, node, key, ".".join(keys[: depth + 1]))
        node = node.setdefault(key, {})
        if not isinstance(node, dict):
            raise ConfigError(f"{'.'.join(keys[: depth + 1])} is a value, not a section: {node!r}")
    leaf = _field_type(kind, node, keys[-1], path.strip())
    node[keys[-1]] = _override_value(raw.strip(), leaf)


def _override_value(raw: str, leaf: shape.Type) -> object:
    """Read the text as TOML unless the field wants exactly text (`name=007` stays "007")."""
    members = leaf.types if isinstance(leaf, shape.UnionType) else (leaf,)
    if raw.lower() in {"none", "null"} and any(isinstance(m, shape.NoneType) for m in members):
        return None
    quoted = raw[:1] in {'"', "'"}
    texts = (shape.StrType, shape.NoneType)
    if not quoted and all(isinstance(m, texts) for m in members):
        return raw
    try:
        parsed = tomllib.loads(f"value = {raw}")
    except tomllib.TOMLDecodeError:
        return raw
    return parsed["value"] if set(parsed) == {"value"} else raw


def _check_keys(data: object, kind: shape.Type, path: str) -> None:
    """Refuse keys no struct knows, anywhere below `data`."""
    if isinstance(kind, shape.UnionType):
        struct = _pick_struct(kind, data)
        if struct is not None:
            _check_keys(data, struct, path)
    elif isinstance(kind, shape.StructType) and isinstance(data, Mapping):
        for key, value in data.items():
            where = f"{path}.{key}" if path else str(key)
            _check_keys(value, _field_type(kind, data, str(key), where), where)
    elif isinstance(kind, shape.DictType) and isinstance(data, Mapping):
        for key, value in data.items():
            _check_keys(value, kind.value_type, f"{path}.{key}" if path else str(key))
    elif isinstance(kind, shape.ListType | shape.VarTupleType) and isinstance(data, list | tuple):
        for index, value in enumerate(data):
            _check_keys(value, kind.item_type, f"{path}[{index}]")


def _field_type(kind: shape.Type, data: object, key: str, where: str) -> shape.Type:
    if isinstance(kind, shape.UnionType):
        kind = _pick_struct(kind, data) or kind
    if isinstance(kind, shape.DictType):
        return kind.value_type
    if not isinstance(kind, shape.StructType):
        raise ConfigError(
            f"unknown configuration key {where!r}: {where.rpartition('.')[0]!r} "
            "is a single value, not a section"
        )
    fields = {field.encode_name: field.type for field in kind.fields}
    if kind.tag_field is not None and key == kind.tag_field:
        return shape.StrType()
    if key not in fields:
        error = unknown_name("configuration key", key, fields)
        raise ConfigError(f"{error} (at {where!r})")
    return fields[key]


def _pick_struct(kind: shape.UnionType, data: object) -> shape.StructType | None:
    """Return the struct of a union the data is for: the only one, or the one its tag names."""
    structs = [m for m in kind.types if isinstance(m, shape.StructType)]
    if len(structs) <= 1:
        return structs[0] if structs else None
    given = data if isinstance(data, Mapping) else {}
    return next((s for s in structs if s.tag_field and given.get(s.tag_field) == s.tag), None)


_MESSAGE = re.compile(r"(?s)(?P<what>.*?)(?: - at `\$(?P<path>[^`]*)`)?")
_EXPECTED = re.compile(r"Expected `(?P<type>[^`]+)`(?P<bound>(?: [^,]*)?)(?:, got `[^`]+`)?")


def _explain(message: str, data: object) -> str:
    match = _MESSAGE.fullmatch(message)
    assert match is not None
    path = (match["path"] or "").lstrip(".")
    value = _look_up(data, path)
    expected = _EXPECTED.fullmatch(match["what"])
    if expected:
        bound = expected["bound"].strip()
        wanted = f"{expected['type']} {bound}".strip()
        return f"{path} must be {wanted}; got {value!r}"
    return f"{path}: {match['what']}" if path else match["what"]


def _look_up(data: object, path: str) -> object:
    for part in re.findall(r"[^.\[\]]+", path):
        if isinstance(data, Mapping):
            data = data.get(part)
        elif isinstance(data, list | tuple) and part.isdigit():
            data = data[int(part)]
    return data


def _blank(value: Any) -> Any:
    """Blank secret keys and URL user information; `Any` because it walks arbitrary JSON."""
    if isinstance(value, Mapping):
        return {
            key: BLANK if str(key).lower() in SECRET_KEYS and item else _blank(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_blank(item) for item in value]
    return _USERINFO.sub(BLANK, value) if isinstance(value, str) else value


def _flatten(value: object, path: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _flatten(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def _default(field: msgspec.structs.FieldInfo) -> object:
    factory = field.default_factory
    return field.default if factory is msgspec.NODEFAULT else factory()


def _field_docstrings(struct_type: type) -> dict[str, str]:
    """Return the string that stands below each field, read from the source of the class."""
    docs: dict[str, str] = {}
    for owner in reversed(struct_type.__mro__[:-1]):
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
        except (OSError, TypeError):  # built without source, e.g. `msgspec.Struct` itself
            continue
        body = getattr(tree.body[0], "body", [])
        for node, following in itertools.pairwise(body):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                text = getattr(getattr(following, "value", None), "value", None)
                if isinstance(following, ast.Expr) and isinstance(text, str):
                    docs[node.target.id] = " ".join(text.split())
    return docs

"""A suite named in one text: `household`, `household?size=tiny&seed=2` or `module:factory`."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec

from dreamgym.envs.base import Suite
from dreamgym.envs.table import make_suite
from dreamgym.errors import ConfigError, unknown_name


def make_spec(name: str, options: Mapping[str, object]) -> str:
    """Return the one text for a suite and its options.

    >>> make_spec("household", {"size": "tiny", "num_tasks": 4})
    'household?size=%22tiny%22&num_tasks=4'
    """
    pairs = {key: msgspec.json.encode(value).decode() for key, value in options.items()}
    return f"{name}?{urlencode(pairs)}" if pairs else name


def open_spec(spec: str) -> Suite:
    """Return the suite a text names; `ConfigError` says what is wrong with it."""
    name, _, query = spec.partition("?")
    options = {
        key: msgspec.json.decode(value) for key, value in parse_qsl(query, keep_blank_values=True)
    }
    return open_suite(name, options)


def open_suite(name: str, options: Mapping[str, object]) -> Suite:
    """Return a suite by its name in the table, or by `module:factory`."""
    if ":" not in name:
        return make_suite(name, **options)
    factory = _factory(name)
    known = list(inspect.signature(factory).parameters)
    for option in options:
        if option not in known:
            raise unknown_name(f"option of {name!r}", option, known)
    suite = factory(**options)
    if not isinstance(suite, Suite):
        raise ConfigError(
            f"{name!r} made a {type(suite).__name__}, which is no suite; expected an object with "
            "name, tasks(split) and open(task, seed=...)"
        )
    return suite


def _factory(name: str) -> Callable[..., object]:
    module_name, _, attribute = name.partition(":")
    if "" not in sys.path:  # a console script does not look into the working folder by itself
        sys.path.insert(0, "")
    try:
        module: Any = importlib.import_module(module_name)
    except (ModuleNotFoundError, ValueError) as error:
        raise ConfigError(
            f"cannot import {module_name!r} of suite {name!r}: {error}; expected module:factory, "
            "e.g. my_package.my_suite:MySuite"
        ) from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise ConfigError(f"module {module_name!r} has no class or function {attribute!r}")
    made: Callable[..., object] = factory
    return made

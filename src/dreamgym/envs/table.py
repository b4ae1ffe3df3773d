"""The table of environments: adding one is one file and one line here."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any, cast

from dreamgym.envs.base import StateReader, Suite
from dreamgym.errors import ConfigError, unknown_name

SUITES: dict[str, str] = {
    "alfworld": "dreamgym.envs.alfworld_suite:AlfworldSuite",
    "gymnasium": "dreamgym.envs.gymnasium_suite:GymnasiumSuite",
    "household": "dreamgym.envs.household.suite:HouseholdSuite",
    "scienceworld": "dreamgym.envs.scienceworld_suite:ScienceworldSuite",
    "textworld": "dreamgym.envs.textworld_suite:TextworldSuite",
}
"""Suite name -> `module:factory`; the factory's keyword parameters are the suite's options."""

READERS: dict[str, str] = {"household": "dreamgym.envs.household.reader:HouseholdReader"}
"""Suite name -> `module:factory` of its state reader."""


def make_suite(name: str, **options: object) -> Suite:
    """Return a suite by name. Unknown names, options and values raise `ConfigError`."""
    factory = _load(SUITES, "suite", name)
    known = [
        parameter.name
        for parameter in inspect.signature(factory).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    for option in options:
        if option not in known:
            raise unknown_name(f"option of suite {name!r}", option, known)
    return cast(Suite, factory(**options))


def make_reader(name: str) -> StateReader:
    """Return the state reader of a suite; `ConfigError` for suites without one."""
    return cast(StateReader, _load(READERS, "state reader", name)())


def _load(table: dict[str, str], what: str, name: str) -> Callable[..., Any]:
    if name not in table:
        raise unknown_name(what, name, table)
    module, _, attribute = table[name].partition(":")
    factory = getattr(importlib.import_module(module), attribute, None)
    if not callable(factory):
        raise ConfigError(f"{what} {name!r} points to {table[name]!r}, which is not there")
    return cast(Callable[..., Any], factory)

"""Errors by the boundary they cross.

DreamGymError
|-- UserError (ValueError)      the caller gave something wrong; exit code 2, one sentence
|   |-- ConfigError             unknown or invalid configuration
|   |-- DataError               an input file is not what it should be
|   `-- MissingExtra (ImportError)  an optional dependency is not installed
|-- FaultError (RuntimeError)   ours: never trained on, never the agent's failure
|   |-- ModelError              a model or endpoint failed
|   |-- ReplyError              a model's reply could not be understood after retries
|   |-- EnvError                an environment failed
|   `-- StoreError              disk or index failed
`-- TrainingError (RuntimeError)    training cannot sensibly continue
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class DreamGymError(Exception):
    """Base of all DreamGym errors."""


class UserError(DreamGymError, ValueError):
    """The caller gave something wrong; the command line prints it and exits with 2."""


class ConfigError(UserError):
    """A configuration value is unknown or invalid."""


class DataError(UserError):
    """An input file is not what it should be."""


class MissingExtra(UserError, ImportError):
    """An optional dependency is missing."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"this needs the package {package!r}, which is not installed; "
            f"run: pip install 'dreamgym[{extra}]'"
        )


class FaultError(DreamGymError, RuntimeError):
    """A fault of ours: the episode is not trained on and not counted as the agent's failure."""


class ModelError(FaultError):
    """A model or endpoint failed."""


class ReplyError(FaultError):
    """A model's reply could not be understood after the allowed retries."""


class EnvError(FaultError):
    """An environment failed (not: the agent failed in it)."""


class StoreError(FaultError):
    """Disk, file or index failed."""


class TrainingError(DreamGymError, RuntimeError):
    """Training cannot sensibly continue."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """Return the error for an unknown name, with the nearest valid one.

    >>> str(unknown_name("suite", "houshold", ["household", "webshop"]))
    "unknown suite 'houshold'; did you mean 'household'? Known: household, webshop"
    """
    options = sorted(known)
    near = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    return ConfigError(f"unknown {kind} {name!r}{hint} Known: {', '.join(options) or 'none'}")

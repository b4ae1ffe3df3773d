"""What `reset` and `step` of foreign environments return -> one shape each.

Old gym returns four values from a step and a bare observation from a reset, Gymnasium five and a
pair, ALFWorld's own trainer lists of one, WebShop `None` instead of a dictionary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dreamgym.errors import EnvError

TRUNCATED_KEY = "TimeLimit.truncated"
"""How old gym marks that `done` came from a time limit."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One step. Any: observations and infos are whatever the environment says."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


def read_reset(returned: Any) -> tuple[Any, dict[str, Any]]:
    """Return (observation, info) of what `reset` returned.

    >>> read_reset("hello"), read_reset(("hello", None)), read_reset((["hello"], {"won": [False]}))
    (('hello', {}), ('hello', {}), ('hello', {'won': False}))
    """
    is_pair = isinstance(returned, tuple) and len(returned) == 2
    if is_pair and (returned[1] is None or isinstance(returned[1], Mapping)):
        observation, info = returned
        batched = _is_batch_of_one(observation)
        return (observation[0] if batched else observation), _info(info, batched)
    return (returned[0] if _is_batch_of_one(returned) else returned), {}


def read_step(returned: Any) -> Outcome:
    """Return what `step` returned in one shape; `EnvError` for what is neither.

    >>> read_step(("a", 1, True, {"TimeLimit.truncated": True})).truncated
    True
    """
    if not isinstance(returned, tuple) or len(returned) not in (4, 5):
        count = (
            f"{len(returned)} values" if isinstance(returned, tuple) else type(returned).__name__
        )
        raise EnvError(
            f"step returned {count}; expected observation, reward, terminated, truncated, info "
            "(Gymnasium) or observation, reward, done, info (old gym)"
        )
    batched = _is_batch_of_one(returned[0]) and _is_batch_of_one(returned[1])
    values = [_first(value, batched) for value in returned[:-1]]
    info = _info(returned[-1], batched)
    if len(values) == 3:
        cut = bool(info.get(TRUNCATED_KEY, False))
        values = [*values[:2], bool(values[2]) and not cut, bool(values[2]) and cut]
    observation, reward, terminated, truncated = values
    try:
        number = float(reward)
    except (TypeError, ValueError) as error:
        raise EnvError(f"step returned the reward {reward!r}, which is no number") from error
    return Outcome(
        observation=observation,
        reward=number,
        terminated=bool(terminated),
        truncated=bool(truncated) and not terminated,
        info=info,
    )


def _info(info: Any, batched: bool) -> dict[str, Any]:
    if info is None:
        return {}
    if not isinstance(info, Mapping):
        raise EnvError(f"info is a {type(info).__name__}; expected a dictionary or None")
    return {str(key): _first(value, batched) for key, value in info.items()}


def _first(value: Any, batched: bool) -> Any:
    return value[0] if batched and _is_batch_of_one(value) else value


def _is_batch_of_one(value: Any) -> bool:
    """Return whether a value is a list or tuple of one, as batched environments return."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes) and len(value) == 1

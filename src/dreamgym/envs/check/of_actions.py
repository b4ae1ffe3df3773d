"""Checks of actions and answers: admissible ones work, bad ones never raise, ends are honest."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from dreamgym.envs.base import Env
from dreamgym.envs.check.probe import (
    NONSENSE,
    Failed,
    Probe,
    Skipped,
    Walk,
    fill,
    refused,
    shorten,
)
from dreamgym.types import Observation, Step

REFUSALS = frozenset({"no_effect", "invalid_action", "inadmissible"})
"""Flags by which a step says that the action did nothing."""

LONG = 100_000
"""Characters of a long action."""
NUM_STATES = 4
"""States per walk whose listed actions are tried."""

T = TypeVar("T")


async def step_records(probe: Probe) -> str:
    """Every step is well-formed: types, finite reward, one way of ending, JSON round trip."""
    count = 0
    for task in probe.tasks:
        walk = await probe.walk(task)
        for action, step in zip(walk.actions, walk.steps, strict=True):
            _check_step(step, action)
            count += 1
    return f"{count} steps well-formed"


async def admissible(probe: Probe) -> str:
    """Every listed action is carried out, in the state that lists it."""
    count = 0
    for task in probe.tasks:
        walk = await probe.walk(task)
        shown = [walk.first, *(step.observation for step in walk.steps)]
        if shown[0].actions is None:
            raise Skipped("the suite lists no admissible actions")
        states = _spread(range(max(1, len(walk.steps))), NUM_STATES)
        for state in states:
            listed = shown[state].actions or ()
            if len(set(listed)) < len(listed) or not all(a.strip() for a in listed):
                raise Failed(f"after {state} step(s) of {task.id!r} an entry is empty or twice")
            refusal = await _answer(probe, walk, state, NONSENSE)
            for action in _spread(listed, max(1, probe.settings.num_admissible // len(states))):
                await _carried_out(probe, walk, state, action, refusal.observation.text)
                count += 1
    if count == 0:
        raise Failed("no state lists any action; where nobody knows them, `actions` is None")
    return f"{count} listed actions carried out"


async def bad_actions(probe: Probe) -> str:
    """Bad actions never raise, are never executed as code, and earn nothing."""
    task = probe.tasks[0]
    with tempfile.TemporaryDirectory() as folder:
        mark = Path(folder) / "mark"
        texts = _bad_texts(mark)
        for text in texts:
            env, _ = await probe.start(task)
            try:
                _earns_nothing(await _taken(probe, env, text), text)
            finally:
                await probe.close(env)
        if mark.exists():
            raise Failed("the text of an action was executed as code")
    return f"{len(texts)} bad actions answered, none executed"


async def unicode_text(probe: Probe) -> str:
    """Text in any script is answered, and everything said can be written as UTF-8."""
    texts = (
        "öffne Schublade 1",
        "打开 抽屉",
        "افتح",
        "🦄 e\u0301 \u202e",
        "a\u2028b\x00c",
        "\ud800",
    )
    task = probe.tasks[-1]
    env, first = await probe.start(task)
    _writable(first, "the first observation")
    try:
        for text in texts:
            step = await _taken(probe, env, text)
            _writable(step.observation, f"the answer to {text!r}")
            if step.terminated or step.truncated:
                break
    finally:
        await probe.close(env)
    return f"{len(texts)} texts answered in UTF-8"


async def long_text(probe: Probe) -> str:
    """An action of 100,000 characters is answered like any other bad action."""
    env, _ = await probe.start(probe.tasks[0])
    try:
        for text in ("go " * (LONG // 3), "click[" + "x" * LONG + "]", "[" * LONG):
            step = await _taken(probe, env, text)
            _earns_nothing(step, text)
            if step.terminated or step.truncated:
                break
    finally:
        await probe.close(env)
    return f"actions of {LONG} characters answered"


async def honest_end(probe: Probe) -> str:
    """Doing nothing never succeeds; a step limit truncates and does not terminate."""
    limit = getattr(probe.suite, "max_steps", None)
    rounds = limit if isinstance(limit, int) else probe.settings.max_end
    env, _ = await probe.start(probe.tasks[0])
    try:
        for number in range(1, rounds + 1):
            step = await probe.step(env, NONSENSE)
            if step.success:
                raise Failed(f"nonsense succeeded at step {number}")
            if step.terminated or step.truncated:
                await _check_over(probe, env, step, number, limit)
                return f"ended at step {number}: {'truncated' if step.truncated else 'terminated'}"
    finally:
        await probe.close(env)
    if isinstance(limit, int):
        raise Failed(f"max_steps is {limit}, but the episode goes on after {rounds} steps")
    return f"no limit of its own within {rounds} steps"


async def _check_over(probe: Probe, env: Env, step: Step, number: int, limit: object) -> None:
    if number == limit and step.terminated:
        raise Failed(f"at the limit of {limit} steps `terminated` is set instead of `truncated`")
    await refused(env.step(NONSENSE), "step after the end")


async def _carried_out(probe: Probe, walk: Walk, state: int, action: str, refusal: str) -> None:
    """Take a listed action in its state; `refusal` is what nonsense is answered there."""
    text = fill(action, walk.task)
    step = await _answer(probe, walk, state, text)
    where = f"{text!r}, listed after {state} step(s) of task {walk.task.id!r},"
    if flag := next((f for f in step.flags if f in REFUSALS), None):
        raise Failed(f"{where} was answered with the flag {flag!r}")
    here = walk.first if state == 0 else walk.steps[state - 1].observation
    if refusal != here.text and step.observation.text == refusal:
        raise Failed(f"{where} was answered like nonsense: {shorten(refusal)}")


async def _answer(probe: Probe, walk: Walk, state: int, action: str) -> Step:
    env, _ = await probe.start(walk.task, seed=walk.seed)
    try:
        for earlier in walk.actions[:state]:
            await probe.step(env, earlier)
        return await _taken(probe, env, action)
    finally:
        await probe.close(env)


async def _taken(probe: Probe, env: Env, action: str) -> Step:
    try:
        return await probe.step(env, action)
    except Failed:
        raise
    except Exception as error:
        raise Failed(f"step({shorten(action)}) raised {type(error).__name__}: {error}") from error


def _bad_texts(mark: Path) -> list[str]:
    touch = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    return [
        "",
        "   ",
        "\n",
        NONSENSE,
        "click[",
        "]]]",
        "search[]",
        "<b>bold</b> & <script>alert(1)</script>",
        "action: look\naction: look",
        "%s {0} $HOME \\",
        touch,
        f"exec({touch!r})",
        f"$(touch {mark}); touch {mark}",
    ]


def _earns_nothing(step: Step, action: str) -> None:
    if step.success or (step.reward is not None and step.reward > 0):
        raise Failed(f"{shorten(action)} earned reward {step.reward} and success {step.success}")


def _check_step(step: Step, action: str) -> None:
    what = f"the answer to {shorten(action)}"
    if not isinstance(step, Step):
        raise Failed(f"{what} is a {type(step).__name__}")
    if not isinstance(step.observation, Observation):
        raise Failed(f"{what} holds a {type(step.observation).__name__} as observation")
    for name in ("terminated", "truncated", "success"):
        if not isinstance(getattr(step, name), bool):
            raise Failed(f"{what} has {name} {getattr(step, name)!r}, which is not true or false")
    if step.reward is not None and not _is_finite(step.reward):
        raise Failed(f"{what} has the reward {step.reward!r}")
    if step.terminated and step.truncated:
        raise Failed(f"{what} is both terminated and truncated")
    if step.success and not step.terminated:
        raise Failed(f"{what} is a success, but the episode is not terminated")
    _writable(step.observation, what)
    if msgspec.json.decode(msgspec.json.encode(step), type=Step) != step:
        raise Failed(f"{what} is another one after a trip through JSON")


def _is_finite(reward: object) -> bool:
    return (
        isinstance(reward, int | float) and not isinstance(reward, bool) and math.isfinite(reward)
    )


def _writable(observation: Observation, what: str) -> None:
    try:
        "\n".join([observation.text, *(observation.actions or ())]).encode("utf-8")
    except (UnicodeEncodeError, TypeError) as error:
        raise Failed(f"{what} cannot be written as UTF-8: {error}") from error


def _spread(items: Sequence[T], count: int) -> list[T]:
    """Return up to `count` items spread evenly over all of them."""
    if len(items) <= count:
        return list(items)
    return [items[i * len(items) // count] for i in range(count)]

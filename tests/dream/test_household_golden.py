"""The household reader on recorded episodes of the genuine engine, and on corrupted ones."""

from __future__ import annotations

import json
import lzma
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from dreamgym.envs.base import Facts
from dreamgym.envs.household.reader import HouseholdReader
from dreamgym.envs.household.readfacts import places
from dreamgym.envs.household.readtext import listing, read_action, read_text
from dreamgym.seeds import derive_random
from dreamgym.types import Observation, Origin, Scenario, Task, Transition

DATA = Path(
    os.environ.get("DREAMGYM_DATA", Path(__file__).resolve().parents[2].parent / "shared" / "data")
)
GOLDEN = DATA / "alfworld_golden_valid_seen.json.xz"
needs_golden = pytest.mark.skipif(
    not GOLDEN.exists(), reason=f"{GOLDEN.name} (recorded episodes) is not next to the checkout"
)
READER = HouseholdReader()


class Golden:
    """The recorded episodes as transitions, with each task's hindsight scenario."""

    def __init__(self) -> None:
        with lzma.open(GOLDEN, "rt", encoding="utf-8") as file:
            raw = json.load(file)
        self._walked: list[tuple[Task, Facts, Facts, Transition]] = []
        self.episodes: dict[str, list[list[Transition]]] = defaultdict(list)
        for item in raw:
            self.episodes[item["id"]].append(self._episode(item))
        self.tasks = {
            name: Task(
                id=name,
                suite="household",
                instruction=found[0][0].instruction,
                scenario=Scenario(
                    first_observation=found[0][0].observation.text,
                    facts=READER.hindsight([step for episode in found for step in episode]),
                ),
            )
            for name, found in self.episodes.items()
        }

    @staticmethod
    def _episode(item: dict[str, object]) -> list[Transition]:
        steps = item["steps"]
        assert isinstance(steps, list)
        first = str(item["first"])
        observation = Observation(text=first, actions=tuple(item["admissible"]))  # type: ignore[arg-type]  # JSON
        out = []
        for number, step in enumerate(steps):
            following = Observation(text=step["feedback"], actions=tuple(step["admissible"]))
            out.append(
                Transition(
                    task_id=str(item["id"]),
                    suite="household",
                    episode_id=f"{item['id']}/{item['mode']}",
                    step=number,
                    instruction=first.split("Your task is to: ")[1].strip(),
                    observation=observation,
                    action=step["action"],
                    next_observation=following,
                    reward=step["reward"],
                    terminated=step["done"],
                    truncated=False,
                    success=step["won"],
                    origin=Origin.REAL,
                )
            )
            observation = following
        return out

    def walk(self) -> list[tuple[Task, Facts, Facts, Transition]]:
        """Return (task, facts before, facts after, step) of every recorded step."""
        if not self._walked:
            self._walked = list(self._walk())
        return self._walked

    def _walk(self) -> Iterator[tuple[Task, Facts, Facts, Transition]]:
        for name, episodes in self.episodes.items():
            for episode in episodes:
                facts = READER.initial(self.tasks[name])
                for step in episode:
                    text = step.next_observation.text
                    new = READER.update(facts, step.action, text)
                    yield self.tasks[name], facts, new, step
                    facts = new


@cache
def golden() -> Golden:
    return Golden()


@needs_golden
def test_every_recorded_text_is_understood() -> None:
    texts = {step.next_observation.text for _, _, _, step in golden().walk()}
    assert len(texts) > 1000
    assert [text for text in texts if read_text(text).kind == "other"] == []


@needs_golden
def test_no_recorded_answer_is_called_a_contradiction() -> None:
    alarms, steps = [], 0
    reader = HouseholdReader().learned(step for _, _, _, step in golden().walk())
    for _, facts, _, step in golden().walk():
        steps += 1
        found = reader.conflicts(facts, step.action, step.next_observation.text)
        if found:
            alarms.append((step.action, step.next_observation.text, found))
    print(f"false alarms: {len(alarms)} of {steps}")
    assert steps > 4900
    assert alarms == []


@needs_golden
def test_achieved_agrees_with_the_genuine_verdict() -> None:
    counts: Counter[tuple[bool | None, bool]] = Counter()
    for task, _, new, step in golden().walk():
        counts[READER.achieved(task, new), step.success] += 1
    print(f"achieved / won: {dict(counts)}")
    assert counts[True, False] == 0
    assert counts[None, False] + counts[None, True] == 0
    # The other three wins come from official games that list one object in two receptacles, of
    # which the recorded steps saw only one.
    assert counts[True, True] >= 139
    assert counts[False, True] <= 3


def _corrupted(facts: Facts, step: Transition) -> Iterator[tuple[str, str, str]]:
    """Yield (kind, action, wrong answer): other target, other contents, success of a non-action."""
    rng = derive_random("corrupt", step.episode_id, step.step)
    reading = read_text(step.next_observation.text)
    names = sorted(places(facts))
    others = [name for name in names if name != reading.place]
    if reading.place and reading.kind in ("arrive", "open", "close", "take", "move"):
        text = step.next_observation.text.replace(reading.place, rng.choice(others))
        yield "other target", step.action, text
    if reading.view is not None and reading.view.items is not None:
        contents = set(reading.view.items)
        donors = [p.items for n, p in places(facts).items() if set(p.items) - contents]
        if donors:
            wrong = listing(rng.choice(donors))
            text = step.next_observation.text.split("you see ")[0] + f"you see {wrong}."
            yield "other contents", step.action, text
    for action in READER.negatives(step):
        text = _kind_answer(facts, action)
        if text:
            yield f"plays along: {READER.action_kind(action)}", action, text


def _kind_answer(facts: Facts, action: str) -> str:
    """Return what a too kind model would answer to an impossible action."""
    request = read_action(action)
    thing, place = request.thing, request.place
    match request.kind:
        case "take":
            return f"You pick up the {thing} from the {place}."
        case "move":
            return f"You move the {thing} to the {place}."
        case "close":
            return f"You close the {place}."
        case "open":
            known = places(facts).get(place)
            items = listing(known.items) if known else "nothing"
            return f"You open the {place}. The {place} is open. In it, you see {items}."
        case "heat" | "cool" | "clean" as verb:
            return f"You {verb} the {thing} using the {place}."
        case "use":
            return f"You turn on the {thing}."
        case _:
            return ""


@needs_golden
def test_corrupted_answers_are_caught() -> None:
    caught: Counter[str] = Counter()
    total: Counter[str] = Counter()
    reader = HouseholdReader().learned(step for _, _, _, step in golden().walk())
    for number, (_, facts, _, step) in enumerate(golden().walk()):
        if number % 7 == 0:
            for kind, action, text in _corrupted(facts, step):
                total[kind] += 1
                caught[kind] += bool(reader.conflicts(facts, action, text))
    rates = {kind: caught[kind] / total[kind] for kind in sorted(total)}
    print("\n".join(f"{kind}: {rates[kind]:.4f} of {total[kind]}" for kind in rates))
    floors = {
        "other target": 1.0,
        "other contents": 0.99,
        "plays along: take": 0.99,
        "plays along: move": 0.97,
        "plays along: open": 0.99,
        "plays along: close": 0.99,
        "plays along: heat": 0.98,
        "plays along: cool": 0.98,
        "plays along: clean": 0.98,
        "plays along: use": 0.98,
    }
    assert all(total[kind] >= 100 for kind in floors), total
    assert {k: rates[k] for k, floor in floors.items() if rates[k] < floor} == {}

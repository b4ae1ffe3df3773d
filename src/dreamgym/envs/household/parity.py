"""Compare the engine with recorded episodes of the genuine one, step by step."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from dreamgym.envs.household.game import HouseholdGame
from dreamgym.envs.household.official import read_json, read_pack
from dreamgym.envs.household.pddl import parse_problem
from dreamgym.errors import DataError

_LISTED = re.compile(r"((?:you see|carrying:) )([^.]*)\.")
_MAX_SHOWN = 20


class ParityReport(msgspec.Struct, frozen=True, kw_only=True):
    """How many recorded episodes the engine reproduces.

    `equal` counts episodes equal at every step in reward, done, won, admissible commands and
    canonical text (the order of listed things is free); `exact_texts` counts observations equal
    letter by letter.
    """

    equal: int
    total: int
    texts: int
    exact_texts: int
    steps: int
    differences: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        """True when every episode agrees."""
        return self.total > 0 and self.equal == self.total

    @property
    def exact_share(self) -> float:
        """Share of observations equal letter by letter."""
        return self.exact_texts / self.texts if self.texts else 0.0

    def summary(self) -> str:
        """Return one line for people."""
        return (
            f"{self.equal}/{self.total} episodes equal over {self.steps} steps; "
            f"{self.exact_share:.2%} of {self.texts} texts equal letter by letter"
        )


def canonical_text(text: str) -> str:
    """Return the text with outer blanks cut and every listing sorted."""

    def resort(match: re.Match[str]) -> str:
        items = sorted(re.split(r", and |, ", match[2]))
        return f"{match[1]}{', '.join(items)}."

    return _LISTED.sub(resort, text.strip())


def default_games_path(golden_path: Path) -> Path:
    """Return the pack lying next to `alfworld_golden_<split>.json.xz`."""
    return golden_path.with_name(golden_path.name.replace("_golden_", "_"))


def run_parity(golden_path: str | Path, games_path: str | Path | None = None) -> ParityReport:
    """Replay recorded episodes and compare everything the genuine engine said.

    Raises `DataError` for files that are missing or not what they should be.
    """
    golden = Path(golden_path)
    games = Path(games_path) if games_path else default_games_path(golden)
    episodes = read_json(golden)
    if not isinstance(episodes, list) or not episodes:
        raise DataError(f"{golden} holds no list of episodes; expected a golden ALFWorld file")
    packed = {game.id: game for game in read_pack(games)}
    equal = texts = exact = steps = 0
    differences: list[str] = []
    for episode in episodes:
        if not isinstance(episode, dict) or not {"id", "first", "steps"} <= episode.keys():
            raise DataError(
                f"an episode in {golden} lacks id, first or steps; is it a golden file?"
            )
        if episode["id"] not in packed:
            raise DataError(f"{games} has no game {episode['id']!r}, which {golden.name} needs")
        source = packed[episode["id"]]
        world = parse_problem(source.pddl_problem, source.task)
        game = HouseholdGame(world, dialects=False)  # the genuine engine knows one spelling
        found, counted, same = _compare(game, episode)
        texts, exact, steps = texts + counted, exact + same, steps + len(episode["steps"])
        equal += not found
        differences.extend(found[:2])
    return ParityReport(
        equal=equal,
        total=len(episodes),
        texts=texts,
        exact_texts=exact,
        steps=steps,
        differences=tuple(differences[:_MAX_SHOWN]),
    )


def _compare(game: HouseholdGame, episode: dict[str, Any]) -> tuple[list[str], int, int]:
    """Return (differences, texts compared, texts equal letter by letter)."""
    found: list[str] = []
    first = game.first()
    exact = int(first == episode["first"])
    _note(found, episode, -1, ("first", canonical_text(episode["first"]), canonical_text(first)))
    _note(found, episode, -1, ("admissible", sorted(episode["admissible"]), game.admissible()))
    for number, step in enumerate(episode["steps"]):
        text, reward, done, won = game.step(step["action"])
        exact += text == step["feedback"]
        pairs = (
            ("feedback", canonical_text(step["feedback"]), canonical_text(text)),
            ("reward", step["reward"], reward),
            ("done", step["done"], done),
            ("won", step["won"], won),
            ("admissible", sorted(step["admissible"]), game.admissible()),
        )
        for pair in pairs:
            _note(found, episode, number, pair)
    return found, 1 + len(episode["steps"]), exact


def _note(
    found: list[str], episode: dict[str, Any], number: int, pair: tuple[str, object, object]
) -> None:
    field, expected, got = pair
    if expected == got:
        return
    if isinstance(expected, list) and isinstance(got, list):
        expected, got = sorted(set(expected) - set(got)), sorted(set(got) - set(expected))
    action = episode["steps"][number]["action"] if number >= 0 else "start"
    found.append(
        f"{episode['id']} step {number} ({action}): {field} expected {expected!r}, got {got!r}"
    )

"""Read official ALFWorld games: `game.tw-pddl` files and packed `alfworld_<split>.json.xz`."""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from dreamgym.errors import DataError

OFFICIAL_SPLITS = ("train", "valid_seen", "valid_unseen", "valid_train")
_LFS = "version https://git-lfs"
_TASK = re.compile(r"Your task is to: (?P<task>[^\"\n]+?)\s*\"")
_GAME_KEYS = ("pddl_domain", "grammar", "pddl_problem")


class OfficialGame(msgspec.Struct, frozen=True, kw_only=True):
    """One official game: its id, task sentence, problem text and recorded winning commands."""

    id: str
    task: str
    pddl_problem: str
    walkthrough: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Task type, the first part of the id."""
        return self.id.split("-", 1)[0]

    @property
    def room(self) -> str:
        """The floor plan the id names, e.g. `FloorPlan323`."""
        return f"FloorPlan{self.id.split('/', 1)[0].rsplit('-', 1)[-1]}"


def read_json(path: str | Path) -> Any:
    """Return the JSON of a plain or `.xz` file; `DataError` says what is wrong with others."""
    path = Path(path)
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"there is no file {path}; give the path of an existing file") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder; expected a file") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    if raw.startswith(_LFS.encode()):
        raise DataError(
            f"{path} is a git-LFS pointer, not the data itself; run `git lfs pull` and try again"
        )
    try:
        text = (lzma.decompress(raw) if path.suffix == ".xz" else raw).decode("utf-8")
        return json.loads(text)
    except (lzma.LZMAError, EOFError):
        raise DataError(
            f"{path} is not a complete .xz file ({len(raw)} bytes); fetch it again"
        ) from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise DataError(
            f"{path} does not hold valid JSON ({error.__class__.__name__}); "
            "it may be cut off, fetch it again"
        ) from None


def read_pack(path: str | Path) -> list[OfficialGame]:
    """Return the games of a packed file, sorted by id. Raises `DataError`."""
    data = read_json(path)
    if not isinstance(data, list) or not data:
        raise DataError(f"{path} holds no list of games; expected a pack of ALFWorld games")
    games = []
    for number, item in enumerate(data):
        try:
            games.append(msgspec.convert(item, OfficialGame))
        except msgspec.ValidationError as error:
            raise DataError(
                f"item {number} of {path} is not an ALFWorld game: {error}; "
                "expected id, task, pddl_problem and walkthrough"
            ) from None
    return sorted(games, key=lambda game: game.id)


def read_game_file(path: str | Path) -> OfficialGame | None:
    """Return the game of a `game.tw-pddl` file, None if it is marked as not solvable."""
    path = Path(path)
    data = read_json(path)
    missing = [key for key in _GAME_KEYS if not isinstance(data, dict) or key not in data]
    if missing:
        raise DataError(
            f"{path} lacks {', '.join(missing)}; expected an ALFWorld game.tw-pddl file"
        )
    if not data.get("solvable", True):
        return None
    match = _TASK.search(data["grammar"]) if isinstance(data["grammar"], str) else None
    if match is None or "UNKNOWN GOAL" in match["task"]:
        raise DataError(f"{path} names no task in its grammar; expected 'Your task is to: ...'")
    identity = "/".join(path.parts[-3:-1])
    item = {
        "id": identity,
        "task": match["task"],
        "pddl_problem": data["pddl_problem"],
        "walkthrough": data.get("walkthrough") or [],
    }
    try:
        return msgspec.convert(item, OfficialGame)
    except msgspec.ValidationError as error:
        raise DataError(f"{path} is not an ALFWorld game: {error}") from None


def find_games(root: str | Path, split: str) -> list[OfficialGame]:
    """Return a split's games, sorted by id, from a data folder, a folder of packs or one pack.

    Folders may be `$ALFWORLD_DATA`, its `json_2.1.1`, or a folder of `alfworld_<split>.json.xz`.
    Games with movable receptacles or sliced objects are left out, as ALFWorld itself does.
    """
    root = Path(root)
    if root.is_file():
        return read_pack(root)
    for pack in (root / f"alfworld_{split}.json.xz", root / f"alfworld_{split}.json"):
        if pack.is_file():
            return read_pack(pack)
    for folder in (root / "json_2.1.1" / split, root / split):
        if folder.is_dir():
            games = sorted(_folder_games(folder), key=lambda game: game.id)
            if games:
                return games
            raise DataError(f"{folder} holds no game.tw-pddl file; run alfworld-download")
    raise DataError(
        f"no ALFWorld games for split {split!r} under {root}; expected "
        f"json_2.1.1/{split}/*/trial_*/game.tw-pddl or alfworld_{split}.json.xz there"
    )


def _folder_games(folder: Path) -> Iterator[OfficialGame]:
    for path in folder.glob("*/trial_*/game.tw-pddl"):
        if "movable" in path.parts[-3] or "Sliced" in path.parts[-3]:
            continue
        game = read_game_file(path)
        if game is not None:
            yield game

"""A hand-written agent without hidden knowledge: it reads, searches plausible places and acts.

Its thoughts say in few words what it is about and which fact it acts on, so that a small model
which clones it learns to look that fact up before it acts on it.

It may fail (ALFWorld's own hand-written expert does, too): whether an episode succeeded is read
from the environment, never assumed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

import msgspec

from dreamgym.envs.household.tables import FITS, OPENABLE
from dreamgym.envs.household.world import CLEAN, COOL, HEAT, LOOK, SIMPLE, TWO
from dreamgym.types import Completion, Observation

_SENTENCES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (LOOK, r"(?:look at|examine the) (?P<o>\w+) (?:under|with) the (?P<r>\w+)"),
        (TWO, r"(?:put|find) two (?P<o>\w+) (?:and put them )?in (?P<r>\w+)"),
        (CLEAN, r"(?:put a clean|clean some) (?P<o>\w+) (?:and put it )?in (?P<r>\w+)"),
        (HEAT, r"(?:put a hot|heat some) (?P<o>\w+) (?:and put it )?in (?P<r>\w+)"),
        (COOL, r"(?:put a cool|cool some) (?P<o>\w+) (?:and put it )?in (?P<r>\w+)"),
        (SIMPLE, r"put (?:a|some) (?P<o>\w+) (?:in|on) (?P<r>\w+)"),
    )
)
_STATIONS = {
    CLEAN: ("clean", ("sinkbasin", "sink")),
    HEAT: ("heat", ("microwave",)),
    COOL: ("cool", ("fridge",)),
}
IDLE_THOUGHT = "hm."
_ITEM = re.compile(r"\ba (\w+ \d+)")


class Request(msgspec.Struct, frozen=True):
    """What a task sentence asks for: task type, object kind, receptacle (or lamp) kind."""

    kind: str
    object_kind: str
    target_kind: str


def read_request(sentence: str) -> Request | None:
    """Return what a task sentence asks for, None if it is worded in no known way."""
    for kind, pattern in _SENTENCES:
        match = pattern.search(sentence.lower())
        if match:
            return Request(kind, match["o"], match["r"])
    return None


def _kind(name: str) -> str:
    return name.rsplit(" ", 1)[0]


def _number(name: str) -> int:
    return int(name.rsplit(" ", 1)[1])


class Searcher:
    """One episode of the searching agent; see `Actor`."""

    def __init__(
        self,
        instruction: str,
        fallback: Callable[[Collection[str]], str],
        slip: Callable[[str, Collection[str]], str] = lambda command, actions: "",
        dawdle: Callable[[str, Collection[str]], str] = lambda here, actions: "",
    ) -> None:
        """`fallback` acts when it is lost; `slip` may exchange its command ("" leaves it).

        `dawdle` may name a look at what is known already (given the place it stands at); it is
        done with a thought, as if it helped.
        """
        self._request = read_request(instruction)
        self._fallback = fallback
        self._slip = slip
        self._dawdle = dawdle
        self._receptacles: list[str] = []
        self._seen: dict[str, str] = {}
        """Object -> receptacle it was last seen in."""
        self._searched: set[str] = set()
        self._delivered: set[str] = set()
        self._refused: set[str] = set()
        self._target = ""
        self._here = ""
        self._held = ""
        self._is_processed = False
        self._last = ""
        self._thought = ""

    async def act(self, observation: Observation) -> Completion:
        """Return the next command, from what was read so far."""
        actions = frozenset(observation.actions or ())
        self._read(observation.text, actions)
        idle = self._dawdle(self._here, actions)
        if idle:
            self._last = idle
            return Completion(text=f"<think>{IDLE_THOUGHT}</think><action>{idle}</action>")
        self._thought = "no idea."
        command = self._choose(actions) if self._request else None
        self._last = command or self._fallback(actions)
        slipped = self._slip(self._last, actions)
        if slipped:
            self._last = slipped
            return Completion(text=f"<action>{slipped}</action>")
        return Completion(text=f"<think>{self._thought}</think><action>{self._last}</action>")

    async def close(self) -> None:
        """Nothing is held."""

    # ---- reading ----------------------------------------------------------------------

    def _read(self, text: str, actions: Collection[str]) -> None:
        if not self._receptacles:
            room = text.split("Your task is to:")[0]
            self._receptacles = sorted(_ITEM.findall(room), key=lambda n: (_kind(n), _number(n)))
            return
        last = self._last
        if text == "Nothing happens." or not last:
            return
        verb, _, rest = last.partition(" ")
        if verb == "go":
            self._here = last.removeprefix("go to ")
        elif verb == "take":
            self._held = rest.split(" from ")[0]
            self._seen.pop(self._held, None)
            self._is_processed = False
        elif verb == "move":
            thing, _, where = rest.partition(" to ")
            self._seen[thing], self._held = where, ""
            if where == self._target:
                self._delivered.add(thing)
        elif self._request and verb == _STATIONS.get(self._request.kind, ("",))[0]:
            self._is_processed = True
        if verb in ("go", "open", "examine") and "you see " in text:
            self._searched.add(self._here)
            for name in [n for n, where in self._seen.items() if where == self._here]:
                del self._seen[name]
            self._seen.update(dict.fromkeys(_ITEM.findall(text), self._here))

    # ---- choosing ---------------------------------------------------------------------

    def _choose(self, actions: Collection[str]) -> str | None:
        request = self._request
        assert request is not None
        opening = f"open {self._here}"
        if opening in actions and self._here not in self._searched:
            self._thought = f"{self._here} closed."
            return opening
        if self._held and _kind(self._held) != request.object_kind:
            self._thought = f"have {self._held}, not {request.object_kind}."
            return next((a for a in sorted(actions) if a.startswith("move ")), None)
        if self._held:
            return self._use_held(request, actions)
        known = sorted(
            name
            for name in self._seen
            if _kind(name) == request.object_kind and name not in self._delivered
        )
        need = f"need {'another ' if self._delivered else ''}{request.object_kind}."
        for name in known:
            where = self._seen[name]
            if where != self._here:
                self._thought = f"{need} {name} in {where}."
                return self._go(where)
            taking = f"take {name} from {where}"
            if taking in actions:
                self._thought = f"{need} {name} here."
                return taking
        self._thought = f"{need} not seen."
        return self._search(request.object_kind)

    def _use_held(self, request: Request, actions: Collection[str]) -> str | None:
        if request.kind == LOOK:
            return self._light(request)
        if request.kind in _STATIONS and not self._is_processed:
            verb, kinds = _STATIONS[request.kind]
            command = f"{verb} {self._held} with {self._here}"
            self._thought = f"have {self._held}. needs {verb}."
            if command in actions:
                self._thought += f" {self._here} here."
                return command
            stations = [r for r in self._receptacles if _kind(r) in kinds and r != self._here]
            return self._go(stations[0]) if stations else None
        return self._deliver(request, actions)

    def _light(self, request: Request) -> str | None:
        have = f"have {self._held}. needs {request.target_kind}."
        lamps = sorted(name for name in self._seen if _kind(name) == request.target_kind)
        if not lamps:
            self._thought = f"{have} not seen."
            return self._search(request.target_kind)
        where = self._seen[lamps[0]]
        if where != self._here:
            self._thought = f"{have} {lamps[0]} in {where}."
            return self._go(where)
        self._thought = f"{have} {lamps[0]} here."
        return f"use {lamps[0]}"

    def _deliver(self, request: Request, actions: Collection[str]) -> str | None:
        if not self._target:
            options = [
                r
                for r in self._receptacles
                if _kind(r) == request.target_kind and r not in self._refused
            ]
            if not options:
                return None
            near = [r for r in options if r == self._here]
            self._target = (near or options)[0]
        done = f"{_STATIONS[request.kind][0]} done. " if request.kind in _STATIONS else ""
        self._thought = f"have {self._held}. {done}goes in {request.target_kind}."
        if self._here != self._target:
            return self._go(self._target)
        self._thought += f" {self._here} here."
        for command in (f"move {self._held} to {self._here}", f"open {self._here}"):
            if command in actions:
                return command
        self._refused.add(self._target)
        self._target = ""
        return self._deliver(request, actions)

    def _search(self, kind: str) -> str | None:
        """Go to the most plausible receptacle not looked into yet: fitting and open ones first."""
        left = [r for r in self._receptacles if r not in self._searched and r != self._here]
        if not left:
            return None
        return self._go(
            min(
                left,
                key=lambda r: (
                    (_kind(r), kind) not in FITS,
                    _kind(r) in OPENABLE,
                    _kind(r),
                    _number(r),
                ),
            )
        )

    def _go(self, receptacle: str) -> str:
        return f"go to {receptacle}"

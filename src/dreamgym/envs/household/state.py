"""The rules: what can be done in a state, what it changes, and what is said about it.

Hand-written for this one domain (no planning-language interpreter), which makes a step some
thousand times cheaper than grounding a domain file.  Two quirks of the genuine engine are kept
because agents see them: `look` before going anywhere lists nothing, and an object moved between
two receptacles at one location is afterwards seen "next to" them.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from dreamgym.envs.household.world import LOOK, World

NOTHING = "Nothing happens."
WELCOME = "-= Welcome to TextWorld, ALFRED! =-"
HELP = """\
Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""


class Verb(IntEnum):
    """The actions of the domain."""

    GO = 0
    OPEN = 1
    CLOSE = 2
    TAKE = 3
    MOVE = 4
    EXAMINE_RECEPTACLE = 5
    EXAMINE_OBJECT = 6
    USE = 7
    HEAT = 8
    CLEAN = 9
    COOL = 10
    SLICE = 11
    LOOK = 12
    INVENTORY = 13
    HELP = 14


Move = tuple[Verb, int, int]
"""Verb, object index and receptacle index; 0 where the verb has no such argument."""

_ALWAYS: dict[str, Move] = {
    "help": (Verb.HELP, 0, 0),
    "inventory": (Verb.INVENTORY, 0, 0),
    "look": (Verb.LOOK, 0, 0),
}
_PROCESS_AT = {
    "sinkbasin": ("cleanable", "clean", Verb.CLEAN),
    "sink": ("cleanable", "clean", Verb.CLEAN),
    "microwave": ("heatable", "heat", Verb.HEAT),
    "fridge": ("coolable", "cool", Verb.COOL),
}


def listing(names: Iterable[str]) -> str:
    """Return `a x 1, a y 2, and a z 3`, or `nothing`."""
    items = [f"a {name}" for name in names]
    if not items:
        return "nothing"
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])}, and {items[-1]}"


class HouseState:
    """One point of one episode; mutable, cheap to copy."""

    __slots__ = (
        "_here",
        "_nearby",
        "clean",
        "contents",
        "cool",
        "held",
        "hot",
        "object_places",
        "opened",
        "place",
        "sliced",
        "taken",
        "toggled",
        "world",
    )

    def __init__(self, world: World) -> None:
        start = world.start
        self.world = world
        self.place = start.place
        self.opened = set(start.opened)
        self.contents = list(start.contents)
        self.object_places = list(start.object_places)
        self.held = -1
        self.clean = set(start.clean)
        self.hot = set(start.hot)
        self.cool = set(start.cool)
        self.sliced = set(start.sliced)
        self.toggled = set(start.toggled)
        self.taken: frozenset[tuple[int, int]] = frozenset()
        """Pairs (object, receptacle) once taken out and not put back there."""
        self._here: dict[str, Move] | None = None
        self._nearby: tuple[int, list[str]] = (-1, [])

    def copy(self) -> HouseState:
        """Return an independent state with the same future."""
        twin = HouseState.__new__(HouseState)
        twin.world, twin.place, twin.held, twin.taken = (
            self.world,
            self.place,
            self.held,
            self.taken,
        )
        twin.opened, twin.contents = set(self.opened), list(self.contents)
        twin.object_places = list(self.object_places)
        twin.clean, twin.hot, twin.cool = set(self.clean), set(self.hot), set(self.cool)
        twin.sliced, twin.toggled = set(self.sliced), set(self.toggled)
        twin._here, twin._nearby = self._here, self._nearby
        return twin

    # ---- what can be done -------------------------------------------------------------

    def local_commands(self) -> dict[str, Move]:
        """Return every admissible command except `go to`, with its meaning."""
        if self._here is None:
            self._here = self._find_local_commands()
        return self._here

    def _find_local_commands(self) -> dict[str, Move]:
        found = dict(_ALWAYS)
        things, held = self.world.things, self.held
        for r in self.world.at_place[self.place]:
            receptacle = self.world.receptacles[r]
            name = receptacle.name
            found[f"examine {name}"] = (Verb.EXAMINE_RECEPTACLE, 0, r)
            is_reachable = True
            if receptacle.openable:
                is_reachable = r in self.opened
                if is_reachable:
                    found[f"close {name}"] = (Verb.CLOSE, 0, r)
                else:
                    found[f"open {name}"] = (Verb.OPEN, 0, r)
            for o in self.contents[r]:
                thing = things[o]
                if is_reachable and held < 0 and thing.portable:
                    found[f"take {thing.name} from {name}"] = (Verb.TAKE, o, r)
                if thing.switchable:  # even inside something closed, as in the genuine rules
                    found[f"use {thing.name}"] = (Verb.USE, o, r)
            if held >= 0:
                if is_reachable and self.world.accepts(r, held):
                    found[f"move {things[held].name} to {name}"] = (Verb.MOVE, held, r)
                process = _PROCESS_AT.get(receptacle.kind)
                if process and getattr(things[held], process[0]):
                    found[f"{process[1]} {things[held].name} with {name}"] = (process[2], held, r)
        if held >= 0:  # the genuine engine lets agents examine only the object they hold
            found[f"examine {things[held].name}"] = (Verb.EXAMINE_OBJECT, held, 0)
            if held in self.world.knives:
                for o in self.world.sliceables:
                    if self.place in self.object_places[o]:
                        command = f"slice {things[o].name} with {things[held].name}"
                        found[command] = (Verb.SLICE, o, held)
        return found

    def find(self, command: str) -> Move | None:
        """Return the meaning of an admissible command, None for anything else."""
        target = self.world.go_commands.get(command)
        if target is not None:
            if self.world.receptacles[target].place == self.place:
                return None  # going nowhere is not an action
            return (Verb.GO, 0, target)
        return self.local_commands().get(command)

    def admissible(self) -> list[str]:
        """Return all admissible commands, sorted; the list is the caller's own."""
        place, going = self._nearby
        if place != self.place:
            receptacles = self.world.receptacles
            going = [
                command
                for command, r in self.world.go_commands.items()
                if receptacles[r].place != self.place
            ]
            going.sort()
            self._nearby = (self.place, going)
        return sorted([*self.local_commands(), *going])

    # ---- what it changes --------------------------------------------------------------

    def apply(self, move: Move) -> str:
        """Carry out an action returned by `find` and return what is said."""
        verb, o, r = move
        if verb >= Verb.LOOK or verb in (Verb.EXAMINE_RECEPTACLE, Verb.EXAMINE_OBJECT):
            return self._describe(verb, o, r)
        self._here = None
        if verb is Verb.SLICE:
            self.sliced.add(o)
            return f"You sliced the {self.world.things[o].name} with the {self._thing(r)}."
        name = self.world.receptacles[r].name
        if verb is Verb.GO:
            self.place = self.world.receptacles[r].place
            return f"You arrive at {name}. {self.describe_receptacle(r)}"
        if verb is Verb.OPEN:
            self.opened.add(r)
            return f"You open the {name}. {self.describe_receptacle(r)}"
        if verb is Verb.CLOSE:
            self.opened.discard(r)
            return f"You close the {name}."
        if verb is Verb.USE:
            self.toggled.add(o)
            return f"You turn on the {self._thing(o)}."
        return self._handle(verb, o, r)

    def _handle(self, verb: Verb, o: int, r: int) -> str:
        """Take, put down or process one object at receptacle r."""
        name, thing = self.world.receptacles[r].name, self._thing(o)
        if verb is Verb.TAKE:
            self.contents[r] = tuple(x for x in self.contents[r] if x != o)
            self.object_places[o] -= {self.place}
            self.taken |= {(o, r)}
            self.held = o
            return f"You pick up the {thing} from the {name}."
        if verb is Verb.MOVE:
            self.contents[r] = tuple(sorted({*self.contents[r], o}))
            self.object_places[o] |= {self.place}
            self.taken -= {(o, r)}
            self.held = -1
            return f"You move the {thing} to the {name}."
        if verb is Verb.CLEAN:
            self.clean.add(o)
            return f"You clean the {thing} using the {name}."
        added, removed = (self.hot, self.cool) if verb is Verb.HEAT else (self.cool, self.hot)
        added.add(o)
        removed.discard(o)
        return f"You {'heat' if verb is Verb.HEAT else 'cool'} the {thing} using the {name}."

    # ---- what is said -----------------------------------------------------------------

    def introduction(self) -> str:
        """Return the first observation: welcome line, room, task."""
        world = self.world
        if world.at_place[self.place]:
            room = self._look()
        else:
            seen = listing(receptacle.name for receptacle in world.receptacles)
            room = f"You are in the middle of a room. Looking quickly around you, you see {seen}."
        return f"{WELCOME}\n\n{room}\n\nYour task is to: {world.task}"

    def describe_receptacle(self, r: int) -> str:
        """Return the sentence about a receptacle and what can be seen in it."""
        receptacle = self.world.receptacles[r]
        if receptacle.openable and r not in self.opened:
            return f"The {receptacle.name} is closed."
        things = self.world.things
        seen = listing(things[o].name for o in self.contents[r])
        if receptacle.openable:
            return f"The {receptacle.name} is open. In it, you see {seen}."
        return f"On the {receptacle.name}, you see {seen}."

    def _describe(self, verb: Verb, o: int, r: int) -> str:
        if verb is Verb.EXAMINE_RECEPTACLE:
            return self.describe_receptacle(r)
        if verb is Verb.EXAMINE_OBJECT:
            return self.describe_object(o)
        if verb is Verb.LOOK:
            return self._look()
        if verb is Verb.HELP:
            return HELP
        if self.held < 0:
            return "You are not carrying anything."
        return f"You are carrying: a {self._thing(self.held)}."

    def describe_object(self, o: int) -> str:
        """Return what examining an object says."""
        thing = self.world.things[o]
        if thing.vessel:
            seen = listing(self._thing(inner) for inner in thing.holds)
            return f"This is a normal {thing.name}. In it, you see {seen}."
        is_clean, is_sliced = o in self.clean, o in self.sliced
        warmth = "hot" if o in self.hot else "cool" if o in self.cool else ""
        if warmth == "cool" and not is_clean and not is_sliced:
            return f"This is a cold {thing.name}."
        if warmth or is_clean:
            words = " and ".join(w for w in (warmth, "clean" if is_clean else "") if w)
            return f"This is a {words}{' sliced' if is_sliced else ''} {thing.name}."
        if thing.switchable and o in self.toggled:
            return f"This {thing.name} is on."
        if thing.sliceable and is_sliced:
            return f"This is a sliced {thing.name}."
        return f"There's nothing special about {thing.name}."

    def _look(self) -> str:
        here = self.world.at_place[self.place]
        if not here:
            return "You are in the middle of a room. Looking quickly around you, you see nothing."
        names = [self.world.receptacles[r].name for r in here]
        facing = names[0] if len(names) == 1 else f"{', '.join(names[:-1])}, and {names[-1]}"
        beside = [
            self._thing(o)
            for o, r in sorted(self.taken)
            if r in here and self.place in self.object_places[o]
        ]
        return f"You are facing the {facing}. Next to it, you see {listing(beside)}."

    def _thing(self, o: int) -> str:
        return self.world.things[o].name

    # ---- the goal ---------------------------------------------------------------------

    def is_won(self) -> bool:
        """Return whether the goal holds now."""
        world, goal = self.world, self.world.goal
        if goal.kind == LOOK:
            if self.held not in world.goal_objects:
                return False
            return any(
                world.things[o].kind == goal.target_kind
                for r in world.at_place[self.place]
                for o in self.contents[r]
                if o in self.toggled and world.things[o].switchable
            )
        wanted = world.goal_objects
        for r in world.goal_receptacles:
            inside = [o for o in self.contents[r] if o in wanted and self.is_ready(o)]
            if len(inside) >= goal.count:
                return True
        return False

    def is_ready(self, o: int) -> bool:
        """Return whether an object has been processed as the goal asks."""
        goal, thing = self.world.goal, self.world.things[o]
        if goal.sliced and o not in self.sliced:
            return False
        if goal.process == "clean":
            return thing.cleanable and o in self.clean
        if goal.process == "hot":
            return thing.heatable and o in self.hot
        if goal.process == "cool":
            return thing.coolable and o in self.cool
        return True

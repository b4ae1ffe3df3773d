"""A planner with full knowledge: the shortest plan among the sensible ones, from any state.

Plans have a fixed shape (free the hands, fetch, process, carry, put down), so the planner tries
each object with each kind of destination on a copy of the state and keeps the cheapest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dreamgym.envs.household.state import HouseState
from dreamgym.envs.household.world import LOOK, Process

_STATION: dict[Process, tuple[str, tuple[str, ...]]] = {
    "clean": ("clean", ("sinkbasin", "sink")),
    "hot": ("heat", ("microwave",)),
    "cool": ("cool", ("fridge",)),
}


class _DeadEnd(Exception):
    """This way of doing the task does not work; try another."""


class _Draft:
    """A plan under construction: commands so far and the state they lead to."""

    def __init__(self, state: HouseState, commands: tuple[str, ...] = ()) -> None:
        self.state = state.copy()
        self.commands = list(commands)

    def fork(self) -> _Draft:
        return _Draft(self.state, tuple(self.commands))

    def do(self, command: str) -> None:
        move = self.state.find(command)
        if move is None:
            raise _DeadEnd(command)
        self.state.apply(move)
        self.commands.append(command)

    def reach(self, receptacle: int) -> None:
        """Stand at a receptacle."""
        target = self.state.world.receptacles[receptacle]
        if target.place != self.state.place:
            self.do(f"go to {target.name}")

    def access(self, receptacle: int) -> None:
        """Stand at a receptacle that is not closed."""
        self.reach(receptacle)
        target = self.state.world.receptacles[receptacle]
        if target.openable and receptacle not in self.state.opened:
            self.do(f"open {target.name}")

    def fetch(self, thing: int) -> None:
        """Hold this object; the hands must be free or hold it already."""
        state = self.state
        if state.held == thing:
            return
        self.free_hands()
        where = [r for r, inside in enumerate(state.contents) if thing in inside]
        if not where:
            raise _DeadEnd("nowhere")
        source = min(where, key=lambda r: (self._distance(r), r))
        self.access(source)
        world = state.world
        self.do(f"take {world.things[thing].name} from {world.receptacles[source].name}")

    def free_hands(self) -> None:
        """Put down whatever is held, where that is cheapest."""
        state, held = self.state, self.state.held
        if held < 0:
            return
        open_to = [r for r in range(len(state.world.receptacles)) if state.world.accepts(r, held)]
        if not open_to:
            raise _DeadEnd("nowhere to put down")
        self.put(min(open_to, key=lambda r: (self._distance(r), r)))

    def put(self, receptacle: int) -> None:
        """Put the held object down there."""
        self.access(receptacle)
        world = self.state.world
        thing = world.things[self.state.held].name
        self.do(f"move {thing} to {world.receptacles[receptacle].name}")

    def process(self) -> None:
        """Clean, heat or cool the held object as the goal asks."""
        state = self.state
        goal = state.world.goal
        if not goal.process or state.is_ready(state.held):
            return
        verb, kinds = _STATION[goal.process]
        stations = [r for r, x in enumerate(state.world.receptacles) if x.kind in kinds]
        if not stations:
            raise _DeadEnd("no station")
        station = min(stations, key=lambda r: (self._distance(r), r))
        self.reach(station)
        world = state.world
        self.do(f"{verb} {world.things[state.held].name} with {world.receptacles[station].name}")

    def _distance(self, receptacle: int) -> int:
        state = self.state
        target = state.world.receptacles[receptacle]
        is_closed = target.openable and receptacle not in state.opened
        return int(target.place != state.place) + int(is_closed)

    def slice(self, thing: int) -> None:
        """Cut an object where it lies, with any knife, then free the hands."""
        state = self.state
        if thing in state.sliced:
            return
        knives = sorted(state.world.knives)
        where = [r for r, inside in enumerate(state.contents) if thing in inside]
        if not knives or not where:
            raise _DeadEnd("cannot slice")
        knife = knives[0] if state.held not in state.world.knives else state.held
        self.fetch(knife)
        self.reach(where[0])
        names = state.world.things
        self.do(f"slice {names[thing].name} with {names[knife].name}")
        self.free_hands()


def make_plan(state: HouseState) -> list[str] | None:
    """Return commands that win from this state, [] if it is won, None if no plan was found."""
    if state.is_won():
        return []
    ways = _look_plans(state) if state.world.goal.kind == LOOK else _placing_plans(state)
    best = min(ways, key=lambda commands: (len(commands), commands), default=None)
    return best


def _look_plans(state: HouseState) -> Iterator[list[str]]:
    world = state.world
    lamps = [
        (o, r)
        for r, inside in enumerate(state.contents)
        for o in inside
        if world.things[o].kind == world.goal.target_kind and world.things[o].switchable
    ]
    for thing in _reachable(state, world.goal_objects):
        for lamp, where in lamps:
            draft = _Draft(state)
            try:
                draft.fetch(thing)
                draft.reach(where)
                if lamp not in draft.state.toggled:
                    draft.do(f"use {world.things[lamp].name}")
            except _DeadEnd:
                continue
            if draft.state.is_won():
                yield draft.commands


def _placing_plans(state: HouseState) -> Iterator[list[str]]:
    goal = state.world.goal
    for target in _distinct_targets(state):
        ready_there = [
            o for o in state.contents[target] if o in state.world.goal_objects and state.is_ready(o)
        ]
        missing = goal.count - len(ready_there)
        yield from _fill(_Draft(state), target, missing, frozenset(ready_there))


def _fill(draft: _Draft, target: int, missing: int, done: frozenset[int]) -> Iterator[list[str]]:
    """Bring `missing` more objects to the target, in every order of the candidates."""
    if missing <= 0:
        if draft.state.is_won():
            yield draft.commands
        return
    for thing in _reachable(draft.state, draft.state.world.goal_objects - done):
        attempt = draft.fork()
        try:
            if draft.state.world.goal.sliced:
                attempt.slice(thing)
            attempt.fetch(thing)
            attempt.process()
            attempt.put(target)
        except _DeadEnd:
            continue
        yield from _fill(attempt, target, missing - 1, done | {thing})


def _reachable(state: HouseState, wanted: Iterable[int]) -> list[int]:
    """Return the wanted objects that are held or can be taken, without obvious duplicates."""
    found: dict[object, int] = {}
    for thing in sorted(wanted):
        if thing == state.held:
            found["held"] = thing
        elif state.world.things[thing].portable:
            where = [r for r, inside in enumerate(state.contents) if thing in inside]
            if where:
                found.setdefault(
                    (tuple(where), state.is_ready(thing), thing in state.sliced), thing
                )
    if "held" in found:
        held = found.pop("held")
        return [held, *found.values()]
    return list(found.values())


def _distinct_targets(state: HouseState) -> list[int]:
    """Return goal receptacles, one for each way in which they differ for planning."""
    found: dict[object, int] = {}
    for r in state.world.goal_receptacles:
        receptacle = state.world.receptacles[r]
        relevant = tuple(o for o in state.contents[r] if o in state.world.goal_objects)
        is_closed = receptacle.openable and r not in state.opened
        found.setdefault((is_closed, receptacle.place == state.place, relevant), r)
    return list(found.values())

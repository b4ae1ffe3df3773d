"""Checks of generated household tasks, from text and facts alone."""

from __future__ import annotations

from random import Random

from dreamgym.envs.base import Facts
from dreamgym.envs.household.goals import Goal, parse_goal
from dreamgym.envs.household.readfacts import Place, places
from dreamgym.envs.household.readtext import kind_of


def task_template(instruction: str) -> str:
    """Return what a task asks for whatever its wording; "" if it cannot be read.

    >>> task_template("clean some mug and put it in desk.")
    'clean mug in desk'
    """
    goal = parse_goal(instruction)
    return goal.phrase() if goal else ""


def why_infeasible(instruction: str, facts: Facts, known: frozenset[str]) -> str | None:
    """Return why a task cannot be played in a world with these facts, None if it can.

    `known` holds the `vocabulary_key` of every logged task: a kind of thing is only asked to be
    treated in a way that some log shows for it.
    """
    goal = parse_goal(instruction)
    if goal is None:
        return "the task sentence has none of the known forms"
    if vocabulary_key(instruction) not in known:
        return f"no log shows {goal.state or 'such'} {goal.thing}"
    world = places(facts)
    found = [i for place in world.values() for i in place.items if kind_of(i) == goal.thing]
    if len(found) < goal.count:
        return f"the world has {len(found)} {goal.thing}, the task needs {goal.count}"
    targets = [name for name in world if kind_of(name) == goal.place]
    lamps = [i for place in world.values() for i in place.items if kind_of(i) == goal.place]
    if not (lamps if goal.looking else targets):
        return f"the world has no {goal.place}"
    if not goal.looking and _is_done(goal, facts):
        return "the task is done from the start"
    return None


def dealt_anew(facts: Facts, rng: Random) -> Facts:
    """Return the facts with the objects of fully known receptacles exchanged between them.

    Receptacles keep their state and how many objects they hold.

    >>> dealt_anew({"desk 1": "surface: mug 1", "bed 1": "surface: pen 1"}, Random(1))
    {'desk 1': 'surface: pen 1', 'bed 1': 'surface: mug 1'}
    """
    full = {name: place for name, place in places(facts).items() if place.is_complete}
    items = [item for place in full.values() for item in place.items]
    rng.shuffle(items)
    new, start = dict(facts), 0
    for name, place in full.items():
        end = start + len(place.items)
        new[name] = Place(place.state, tuple(items[start:end]), True).text()
        start = end
    return new


def vocabulary_key(instruction: str) -> str:
    """Return the treatment and the kind of thing of a task, e.g. `hot apple`.

    >>> vocabulary_key("put a hot apple in fridge.")
    'hot apple'
    """
    goal = parse_goal(instruction)
    if goal is None:
        return ""
    return f"{goal.state or ('look' if goal.looking else 'put')} {goal.thing}"


def _is_done(goal: Goal, facts: Facts) -> bool:
    if goal.state:
        return False
    return any(
        sum(kind_of(item) == goal.thing for item in place.items) >= goal.count
        for name, place in places(facts).items()
        if kind_of(name) == goal.place
    )

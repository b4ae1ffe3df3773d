"""The genuine ALFWorld engine, kept alive and made quick, without its side effects.

TextWorld translates a game's PDDL four times a reset and parses the same grammar strings at every
step; both are remembered here, which leaves the texts as they are.  A new engine per game copies
the planner's library and leaks, so engines are reused: one per episode open at the same time.
Nothing of a game file is ever evaluated: domain and grammar are the package's own, a game
contributes its PDDL problem and its task sentence, and the sentence may hold no grammar signs.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dreamgym.errors import ConfigError, DataError, EnvError, MissingExtra, UserError

PINS = "alfworld==0.4.2, textworld==1.7.0, fast-downward-textworld"
"""Versions this was written against."""

_SENTENCE = re.compile(r"[^\"\\#{}\[\]|\n]+")
_SINK = ";(receptacleType ?r SinkType)"
_TRANSLATIONS_KEPT = 16
_TEXTS_KEPT = 4096
_FACTS_KEPT = 5_000


class Turn(NamedTuple):
    """What the engine says after a start or a command."""

    text: str
    actions: tuple[str, ...]
    won: bool


class Logic(NamedTuple):
    """What all games share: the PDDL domain and the text grammar."""

    domain: str
    grammar: str


class Engine:
    """One reusable engine; `start` loads a game, `step` plays it."""

    def __init__(self) -> None:
        """Load the planner library. Raises `MissingExtra`, `ConfigError`."""
        packages = _packages()
        infos = packages.textworld.EnvInfos(admissible_commands=True, won=True)
        with _guarded(packages):
            self._env = packages.pddl.PddlEnv(infos)
        self._packages = packages
        self._loaded = ""

    def start(self, problem: str, sentence: str) -> Turn:
        """Load a game and return its beginning. Raises `EnvError`."""
        logic = _logic()
        grammar = logic.grammar.replace("UNKNOWN GOAL", checked_sentence(sentence).rstrip("."))
        game = {"pddl_domain": logic.domain, "grammar": grammar, "pddl_problem": problem}
        with _guarded(self._packages):
            is_loaded, self._loaded = self._loaded == problem + sentence, ""
            if not is_loaded:
                _forget_facts()
                self._env.load(game)
                self._rename()
            turn = _turn(self._env.reset())
        self._loaded = problem + sentence
        return turn

    def step(self, command: str) -> Turn:
        """Give one command and return the answer. Raises `EnvError`."""
        loaded, self._loaded = self._loaded, ""  # loaded anew if this goes wrong
        with _guarded(self._packages):
            state, _, _ = self._env.step(command)
            turn = _turn(state)
        self._loaded = loaded
        return turn

    def _rename(self) -> None:
        """Give entities ALFWorld's names (`desk 1`); its own wrapper imports a whole trainer."""
        entities = self._env._entity_infos
        names = self._packages.demangler(game_infos=entities, shuffle=False)
        for entity in entities.values():
            entity.name = names.demangle_alfred_name(entity.id)


class EnginePool:
    """Engines for episodes: one is taken per open episode and given back at its end."""

    def __init__(self, make: Callable[[], Engine] = Engine) -> None:
        """Engines are made by `make` when none is free."""
        self._make = make
        self._free: list[Engine] = []
        self.num_made = 0

    def take(self) -> Engine:
        """Return a free engine, a new one if all are in use."""
        if self._free:
            return self._free.pop()
        self.num_made += 1
        return self._make()

    def give(self, engine: Engine) -> None:
        """Take an engine back."""
        self._free.append(engine)


def check_installed() -> None:
    """Raise `MissingExtra` or `ConfigError` where the engine cannot be imported."""
    _packages()


def checked_sentence(sentence: str) -> str:
    """Return a task sentence that the text grammar takes literally; `DataError` for others."""
    if not _SENTENCE.fullmatch(sentence):
        raise DataError(
            f'task sentence {sentence!r} holds one of the signs " \\ # {{ }} [ ] | or a line '
            "break, which the game's grammar would interpret; expected plain words"
        )
    return sentence


class _Packages(NamedTuple):
    """The optional packages. Any: they ship no types."""

    textworld: Any
    pddl: Any
    textgen: Any
    rule: Any
    fast_downward: Any
    demangler: Any
    domain: Path
    grammar: Path


@functools.cache
def _packages() -> _Packages:
    """Import the engine; it sets variables and folders on import, which are put back."""
    before = dict(os.environ)
    try:
        import fast_downward
        import textworld
        from alfworld.agents.utils.misc import Demangler
        from alfworld.info import ALFRED_PDDL_PATH, ALFRED_TWL2_PATH
        from textworld.envs import pddl
        from textworld.envs.pddl import textgen
        from textworld.logic import Rule
    except ImportError as error:
        if error.name in {"alfworld", "textworld", "fast_downward"}:
            raise MissingExtra(error.name, "alfworld") from error
        raise ConfigError(
            f"ALFWorld is installed but cannot be used: {error}; install {PINS}"
        ) from error
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
    return _Packages(
        textworld=textworld,
        pddl=pddl,
        textgen=textgen,
        rule=Rule,
        fast_downward=fast_downward,
        demangler=Demangler,
        domain=Path(ALFRED_PDDL_PATH),
        grammar=Path(ALFRED_TWL2_PATH),
    )


@functools.cache
def _logic() -> Logic:
    """Return domain and grammar of the package; cleaning needs a sink, as in released games.

    The package has that one condition of its domain commented out; the games ALFWorld releases
    carry a domain with it.
    """
    packages = _packages()
    domain = packages.domain.read_text("utf-8")
    return Logic(domain.replace(_SINK, _SINK[1:]), packages.grammar.read_text("utf-8"))


def _forget_facts() -> None:
    """Empty TextWorld's table of every fact of every game so far once it is large.

    It grows by a megabyte a game and is there for speed only: facts are equal by their content.
    """
    table: Any = getattr(sys.modules.get("mementos.core"), "_memento_cache", {})
    if len(table) > _FACTS_KEPT:
        for key in [key for key in table if getattr(key[0], "__name__", "") == "Proposition"]:
            del table[key]


def _turn(state: Any) -> Turn:
    return Turn(str(state.feedback), tuple(state.admissible_commands), bool(state.won))


@contextlib.contextmanager
def _guarded(packages: _Packages) -> Iterator[None]:
    """Inside: translation and parsing remembered; after: `sys.argv` and functions as before."""
    argv, stdout = sys.argv, sys.stdout
    memo = _memo()
    places = (
        (packages.fast_downward, "pddl2sas", memo.translate),
        (packages.textgen, "_parse_and_convert", memo.parse),
        (packages.textgen, "copy_context", _shallow_context),
        (packages.rule, "parse_conjunctive_query", staticmethod(memo.query)),
    )
    for owner, name, quick in places:
        setattr(owner, name, quick)
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise EnvError(f"ALFWorld's engine failed: {type(error).__name__}: {error}") from error
    finally:
        for owner, name, _ in places:
            setattr(owner, name, memo.originals[name])
        sys.argv, sys.stdout = argv, stdout


def _shallow_context(context: dict[str, Any]) -> dict[str, Any]:
    """Copy what a derivation adds to; the entities themselves are only read."""
    copied = ("variables", "mapping")
    return {key: dict(value) if key in copied else value for key, value in context.items()}


class _Memo(NamedTuple):
    """Remembering versions of three functions, and the originals by name."""

    translate: Callable[..., Any]
    parse: Callable[..., Any]
    query: Callable[[str], Any]
    originals: dict[str, Any]


@functools.cache
def _memo() -> _Memo:
    packages = _packages()
    originals = {
        "pddl2sas": packages.fast_downward.pddl2sas,
        "_parse_and_convert": packages.textgen._parse_and_convert,
        "copy_context": packages.textgen.copy_context,
        "parse_conjunctive_query": packages.rule.__dict__["parse_conjunctive_query"],
    }
    query = packages.rule.parse_conjunctive_query

    @functools.lru_cache(_TRANSLATIONS_KEPT)
    def translated(domain: str, problem: str, optimize: bool) -> Any:
        return originals["pddl2sas"](domain, problem, optimize=optimize)

    def translate(domain: str, problem: str, verbose: bool = False, optimize: bool = False) -> Any:
        return translated(domain, problem, optimize)

    @functools.lru_cache(_TEXTS_KEPT)
    def parsed(text: str, rule_name: str) -> Any:
        return originals["_parse_and_convert"](text, rule_name=rule_name)

    def parse(text: str, rule_name: str = "symbols", **_: object) -> Any:
        return copy.deepcopy(parsed(text, rule_name))  # derivation writes into the symbols

    @functools.lru_cache(_TEXTS_KEPT)
    def asked(expression: str) -> Any:
        return query(expression)

    def ask(expression: str) -> Any:
        rule = asked(expression)  # copied, as a rule keeps everything it was ever applied to
        return packages.rule(rule.name, rule.preconditions, rule.postconditions)

    return _Memo(translate, parse, ask, originals)

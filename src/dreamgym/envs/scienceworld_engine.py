"""ScienceWorld's simulator: one Java process for all episodes, and what it must have to start."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
import threading
from typing import Any, NamedTuple

from dreamgym.errors import ConfigError, EnvError, MissingExtra

MIN_JAVA = 8
TESTED = "Java 17 with scienceworld 1.2.3"

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


class Reading(NamedTuple):
    """What a simulation says after a start or an action; `score` is a share of 1 (-1: lost)."""

    text: str
    score: float
    is_over: bool
    actions: tuple[str, ...] | None


class Simulator:
    """The Java process; every episode gets a simulation of its own inside it."""

    def __init__(self) -> None:
        """Start Java. Raises `MissingExtra`, `ConfigError`, `EnvError`."""
        scienceworld = check_installed()
        try:
            # Any: the package ships no types.
            self._main: Any = scienceworld.ScienceWorldEnv("", envStepLimit=10**9)
        except Exception as error:
            raise EnvError(f"ScienceWorld's simulator does not start: {error}") from error
        self.version = str(getattr(scienceworld, "__version__", "unknown"))
        self._lock = threading.Lock()  # the simulator's own state is not made for threads

    @property
    def is_alive(self) -> bool:
        """Whether the Java process runs."""
        return self._main._gateway.java_process.poll() is None

    def kinds(self) -> tuple[str, ...]:
        """Return the names of the task types."""
        return tuple(self._main.get_task_names())

    def variations(self, kind: str, split: str) -> list[int]:
        """Return the variations of a task type in `train`, `dev` or `test`."""
        with self._lock:
            self._main.load(kind, 0, "")
            return sorted(getattr(self._main, f"get_variations_{split}")())

    def description(self, kind: str, variation: int, simplification: str) -> str:
        """Return the task sentence of a variation (loads it, which takes about a second)."""
        with self._lock:
            self._main.load(kind, variation, simplification)
            return str(self._main.get_task_description())

    def open(self, kind: str, variation: int, simplification: str) -> Simulation:
        """Return a simulation of one variation at its beginning. Raises `EnvError`."""
        try:
            with self._lock:
                server = self._main._gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface()
                server.load(kind, variation, simplification, False)
                server.reset()
        except Exception as error:
            raise EnvError(f"ScienceWorld cannot load {kind} {variation}: {error}") from error
        return Simulation(server, self._lock)

    def close(self) -> None:
        """End the Java process."""
        self._main.close()


class Simulation:
    """One running simulation."""

    def __init__(self, server: Any, lock: threading.Lock) -> None:
        """`server` is the Java object. Any: it has no Python type."""
        self._server = server
        self._lock = lock

    def act(self, action: str, *, with_actions: bool) -> Reading:
        """Give one action; listing the admissible ones costs about as much again."""
        try:
            with self._lock:
                text = str(self._server.step(action))
                score = float(self._server.getScore())
                is_over = bool(self._server.getCompleted())
                actions = self._actions() if with_actions else None
        except Exception as error:
            raise EnvError(f"ScienceWorld failed at {action[:80]!r}: {error}") from error
        return Reading(text.strip(), round(score, 6), is_over or score < 0, actions)

    def _actions(self) -> tuple[str, ...]:
        """Return the admissible actions.

        The simulator also lists actions on things inside closed containers, which it then does
        not understand; only those on things in sight are kept.
        """
        listed = json.loads(self._server.getValidActionObjectCombinationsJSON())["validActions"]
        in_sight = json.loads(self._server.getPossibleObjectReferentLUTJSON()).keys()
        return tuple(
            sorted({a["action"] for a in listed if all(str(i) in in_sight for i in a["obj_ids"])})
        )


_running: list[Simulator] = []


def simulator() -> Simulator:
    """Return the running simulator; starts one where there is none or it has died."""
    if not _running or not _running[0].is_alive:
        _running[:] = [Simulator()]
    return _running[0]


def check_installed() -> Any:
    """Return the package, which ships no types. Raises `MissingExtra`, `ConfigError`."""
    try:
        import scienceworld
    except ImportError as error:
        raise MissingExtra("scienceworld", "scienceworld") from error
    check_java()
    return scienceworld


@functools.cache
def check_java() -> None:
    """Raise `ConfigError` where no usable Java is found; says which was found where."""
    path = shutil.which("java")
    if path is None:
        raise ConfigError(
            f"ScienceWorld needs Java {MIN_JAVA} or newer and there is no `java` on the PATH; "
            f"install a Java runtime, e.g. openjdk-17-jre-headless (tested: {TESTED})"
        )
    try:
        told = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{path} -version failed: {error}; install a Java runtime") from error
    found = _VERSION.search(told.stderr + told.stdout)
    if found is None or int(found[1]) < MIN_JAVA:
        version = found[1] if found else "unknown"
        raise ConfigError(
            f"ScienceWorld needs Java {MIN_JAVA} or newer; {path} is version {version} "
            f"(tested: {TESTED})"
        )

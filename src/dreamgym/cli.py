"""The command line: `dreamgym demo | collect | clone | fit | train | transfer | evaluate | ...`.

Each command is a thin layer over one library call.  A mistake of the caller's is printed as one
sentence and exits with 2, a fault of ours or a failed training with 1; an interrupted run exits
with 130 and goes on when the same command is run again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from dreamgym.errors import ConfigError, DreamGymError, MissingExtra, UserError, unknown_name

Command = Callable[[argparse.Namespace], int]

EXTRAS = {
    "torch": "train",
    "transformers": "train",
    "tokenizers": "train",
    "safetensors": "train",
    "peft": "train",
    "openai": "endpoint",
    "matplotlib": "report",
    "jinja2": "report",
    "scipy": "report",
}
"""Optional package -> the extra that installs it."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are `ConfigError`s."""

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong with the arguments."""
        raise ConfigError(f"{message}; see `{self.prog} --help`")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        return _run(list(sys.argv[1:] if argv is None else argv))
    except UserError as error:
        return _fail(str(error), 2)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        return _fail(str(MissingExtra(package, EXTRAS[package])), 2)
    except DreamGymError as error:
        return _fail(str(error), 1)
    except SystemExit as stop:  # argparse after --help and --version
        return int(stop.code or 0)
    except KeyboardInterrupt:
        return _fail(
            "interrupted; what was written stays, run the same command again to go on "
            "(training: from the last checkpoint)",
            130,
        )


def build_parser() -> tuple[argparse.ArgumentParser, list[str]]:
    """Return the parser and the names of its commands."""
    from dreamgym import commands

    parser = Parser(
        prog="dreamgym",
        description="Train LLM agents by reinforcement learning in dreams; judge them for real.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=_version())
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, (add, run, summary) in commands.COMMANDS.items():
        sub = subparsers.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        add(sub)
        flags = [flag for flag in sub._option_string_actions if flag.startswith("--")]
        sub.set_defaults(run_command=run, known_flags=flags)
    return parser, list(commands.COMMANDS)


def _run(arguments: list[str]) -> int:
    parser, names = build_parser()
    first = next((a for a in arguments if not a.startswith("-")), None)
    if first is not None and first not in names:
        raise unknown_name("command", first, names)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        flag = unknown[0].partition("=")[0]
        if not flag.startswith("-"):
            raise ConfigError(f"unexpected argument {flag!r}; see `dreamgym {first or ''} --help`")
        raise unknown_name("flag", flag, getattr(options, "known_flags", ["--version", "--help"]))
    command: Command | None = getattr(options, "run_command", None)
    if command is None:
        parser.print_help()
        return 0
    return command(options)


def _fail(message: str, code: int) -> int:
    print(f"dreamgym: {message}", file=sys.stderr)
    return code


def _version() -> str:
    from dreamgym import __version__

    return f"dreamgym {__version__}"


if __name__ == "__main__":
    sys.exit(main())

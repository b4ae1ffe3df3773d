"""The command line: `dreamgym demo | collect | clone | fit | train | transfer | evaluate | ...`.

Each command is a thin layer over one library call.  A mistake of the caller's is printed as one
sentence and exits with 2; an interrupted run exits with 130 and can be resumed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from dreamgym.errors import DreamGymError, UserError, unknown_name

Command = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser, names = build_parser()
    first = next((a for a in arguments if not a.startswith("-")), None)
    try:
        if first is not None and first not in names:
            raise unknown_name("command", first, names)
        options = parser.parse_args(arguments)
        command: Command | None = getattr(options, "run_command", None)
        if command is None:
            parser.print_help()
            return 0
        return command(options)
    except UserError as error:
        print(f"dreamgym: {error}", file=sys.stderr)
        return 2
    except DreamGymError as error:
        print(f"dreamgym: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "dreamgym: interrupted; the run folder is complete up to the last step, "
            "run the same command with --resume to go on",
            file=sys.stderr,
        )
        return 130


def build_parser() -> tuple[argparse.ArgumentParser, list[str]]:
    """Return the parser and the names of its commands."""
    from dreamgym import commands

    parser = argparse.ArgumentParser(
        prog="dreamgym",
        description="Train LLM agents by reinforcement learning in dreams; judge them for real.",
    )
    parser.add_argument("--version", action="version", version=_version())
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, (add, run, summary) in commands.COMMANDS.items():
        sub = subparsers.add_parser(name, help=summary, description=summary)
        add(sub)
        sub.set_defaults(run_command=run)
    return parser, list(commands.COMMANDS)


def _version() -> str:
    from importlib.metadata import version

    return f"dreamgym {version('dreamgym')}"


if __name__ == "__main__":
    sys.exit(main())

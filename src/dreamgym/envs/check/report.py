"""What a check found."""

from __future__ import annotations

from typing import Literal

import msgspec

Status = Literal["pass", "fail", "skip"]

_MAX_SEEN = 400


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """One check: what was expected and what was seen."""

    name: str
    status: Status
    expected: str
    seen: str

    def line(self) -> str:
        """Return one line for people.

        >>> CheckResult(name="close", status="pass", expected="x", seen="closed twice").line()
        'pass  close: closed twice'
        """
        seen = " ".join(self.seen.split())
        seen = seen if len(seen) <= _MAX_SEEN else f"{seen[:_MAX_SEEN]}..."
        if self.status == "fail":
            return f"FAIL  {self.name}: expected {self.expected}; seen: {seen}"
        return f"{self.status}  {self.name}: {seen}"


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """The results of all checks of one suite, in the order they ran."""

    suite: str
    split: str
    results: tuple[CheckResult, ...]

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        """The checks that failed."""
        return tuple(result for result in self.results if result.status == "fail")

    @property
    def is_ok(self) -> bool:
        """True when no check failed (skipped ones do not count)."""
        return bool(self.results) and not self.failures

    def lines(self) -> list[str]:
        """Return one line per check."""
        return [result.line() for result in self.results]

    def summary(self) -> str:
        """Return one line about all of them."""
        counts = {s: sum(r.status == s for r in self.results) for s in ("pass", "fail", "skip")}
        return (
            f"{self.suite}: {counts['pass']} passed, {counts['fail']} failed, "
            f"{counts['skip']} skipped"
        )

    def raise_for_failures(self) -> None:
        """Raise `AssertionError` with a line per failed check; for use inside a test."""
        if not self.is_ok:
            failed = "\n".join(result.line() for result in self.failures)
            raise AssertionError(f"{self.summary()}\n{failed}")

"""The verifier: a claimed success has to follow from the task sentence and the known facts.

Unaudited rewards of a language model get exploited.  Where the goal can be read, the ledger's
facts decide; where it cannot (`StateReader.achieved` returns None), the claim stands and is
flagged, so that its rate is reported.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec

from dreamgym.dream.reply import DreamReply
from dreamgym.envs.base import Facts, StateReader
from dreamgym.types import Record, Task

Outcome = Literal[
    "agreed", "unsupported_success", "missed_success", "early_stop", "unverified", "unscorable"
]


class VerifyConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How claims are settled."""

    mode: Literal["outcome", "sum"] = "outcome"
    """`outcome`: only success pays, an early reward is ignored and flagged; `sum`: each step's
    reward counts as the model gave it (except where it claims an unsupported success)."""
    trust_verifier: bool = True
    """A success the facts show but the reply denies counts as a success; else it is only
    flagged, and success needs both."""
    claims: Literal["checked", "believed"] = "checked"
    """`believed`: the model's outcome stands; the facts only count where they disagree."""


class Verdict(Record, frozen=True, kw_only=True):
    """What the step counts as. `reward` None: unscorable, never trained on."""

    outcome: Outcome
    reward: float | None
    done: bool
    success: bool
    flags: tuple[str, ...] = ()


class Verifier:
    """Settles success claims of dreamt steps and counts how it went."""

    def __init__(
        self,
        reader: StateReader,
        config: VerifyConfig | None = None,
        *,
        failure_ends: bool | None = None,
    ) -> None:
        """Take the suite's reader.

        `failure_ends` says whether an episode can end in failure (buying the wrong product).
        None asks the reader's attribute of that name, absent means False: then `done` without
        success is the model's mistake, and the episode goes on.
        """
        self._reader = reader
        self._config = config or VerifyConfig()
        if failure_ends is None:
            failure_ends = bool(getattr(reader, "failure_ends", False))
        self._failure_ends = failure_ends
        self.counters: Counter[str] = Counter()

    def judge(self, task: Task, facts: Facts, reply: DreamReply) -> Verdict:
        """Return the verdict on a reply, given the facts *after* the step."""
        achieved = self._reader.achieved(task, facts)
        verdict = self._judge(achieved, reply)
        if self._config.claims == "believed":
            verdict = msgspec.structs.replace(
                verdict, reward=reply.reward, done=reply.done, success=reply.success
            )
        self.counters["verify/steps"] += 1
        self.counters[f"verify/{verdict.outcome}"] += 1
        if reply.success:
            self.counters["verify/claims"] += 1
        if "early_reward" in verdict.flags:
            self.counters["verify/early_reward"] += 1
        return verdict

    def rates(self) -> dict[str, float]:
        """Return `verify/unsupported_success` per claimed success and the others per step."""
        claims = max(self.counters["verify/claims"], 1)
        steps = max(self.counters["verify/steps"], 1)
        return {
            "verify/unsupported_success": self.counters["verify/unsupported_success"] / claims,
            "verify/missed_success": self.counters["verify/missed_success"] / steps,
            "verify/early_stop": self.counters["verify/early_stop"] / steps,
            "verify/early_reward": self.counters["verify/early_reward"] / steps,
            "verify/unverified": self.counters["verify/unverified"] / steps,
        }

    def _judge(self, achieved: bool | None, reply: DreamReply) -> Verdict:
        if reply.reward is None:
            # Null is not zero: the step is left out of training instead of counted as failure.
            return _verdict("unscorable", None, reply.done, False, "unscorable")
        if reply.success:
            return self._claimed(achieved, reply)
        if achieved and self._config.trust_verifier:
            return _verdict("missed_success", 1.0, True, True, "missed_success")
        flags = ["missed_success"] if achieved else []
        outcome: Outcome = "missed_success" if achieved else "agreed"
        done, reward = reply.done, reply.reward
        if self._config.mode == "outcome" and reward > 0 and not (done and self._failure_ends):
            # Paid before (or without) a success; a final partial reward is a legitimate score.
            flags.append("early_reward")
            reward = 0.0
        if done and achieved is False and not self._failure_ends:
            flags.append("early_stop")
            outcome, done = "early_stop", False
        return _verdict(outcome, reward, done, False, *flags)

    def _claimed(self, achieved: bool | None, reply: DreamReply) -> Verdict:
        if achieved is None:
            return _verdict("unverified", reply.reward, True, True, "unverified")
        if achieved:
            return _verdict("agreed", reply.reward, True, True)
        # Where failing is final, the end is believed and only the success is not.
        return _verdict(
            "unsupported_success", 0.0, self._failure_ends, False, "unsupported_success"
        )


def _verdict(
    outcome: Outcome, reward: float | None, done: bool, success: bool, *flags: str
) -> Verdict:
    return Verdict(outcome=outcome, reward=reward, done=done, success=success, flags=tuple(flags))

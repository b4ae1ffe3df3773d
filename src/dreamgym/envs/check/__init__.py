"""A conformance checker for any suite: what the rest of DreamGym relies on, one line per check."""

from __future__ import annotations

from dreamgym.envs.check.probe import CheckSettings
from dreamgym.envs.check.report import CheckReport, CheckResult
from dreamgym.envs.check.run import CHECKS, check_named, check_suite

__all__ = ["CHECKS", "CheckReport", "CheckResult", "CheckSettings", "check_named", "check_suite"]

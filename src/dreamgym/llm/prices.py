"""What tokens cost: a table you write, because prices change faster than programs.

    # prices.toml: money per million tokens
    [models."some-model"]
    prompt = 0.25
    completion = 2.0

A model that is not in the table has no known price, which is not a price of 0: a limit on money
refuses to start with it, and reports say "unknown".
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from pathlib import Path

import msgspec

from dreamgym.config import load_config
from dreamgym.errors import ConfigError

MILLION = 1_000_000


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Money per million tokens. 0 and 0 is the price of a server of one's own, said on purpose."""

    prompt: float
    completion: float
    currency: str = "USD"

    def __post_init__(self) -> None:
        """Refuse prices that are none."""
        for name in ("prompt", "completion"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise ConfigError(
                    f"the price per million {name} tokens must be 0 or more; got {value}"
                )

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the money for so many tokens.

        >>> Price(prompt=2.0, completion=10.0).cost(500_000, 100_000)
        2.0
        """
        return (self.prompt * prompt_tokens + self.completion * completion_tokens) / MILLION


class PriceTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Model name -> price."""

    models: Mapping[str, Price] = {}

    def find(self, model: str) -> Price | None:
        """Return the price of a model, None if it is not known."""
        return self.models.get(model)

    def price(self, model: str) -> Price:
        """Return the price of a model; raises `ConfigError` when it is not known."""
        found = self.find(model)
        if found is not None:
            return found
        near = difflib.get_close_matches(model, list(self.models), n=1, cutoff=0.5)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ConfigError(
            f"no price is known for model {model!r}{hint}, so its cost cannot be limited; add it "
            "to the price table, with 0 for a server of your own"
        )


def load_prices(path: str | Path) -> PriceTable:
    """Return the price table in a TOML file; raises `ConfigError` for one that cannot be read."""
    return load_config(PriceTable, path)

"""From settings to a chat model behind an endpoint, with its price, budget and answer cache."""

from __future__ import annotations

from pathlib import Path

import msgspec

from dreamgym.errors import ConfigError
from dreamgym.llm.budget import Budget, Limits
from dreamgym.llm.cache import CachedChat
from dreamgym.llm.endpoint import EndpointChat
from dreamgym.llm.prices import Price, load_prices


class EndpointSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An OpenAI-compatible endpoint, and what may be spent on it."""

    url: str = ""
    """Base URL, e.g. `http://localhost:8000/v1`."""
    model: str = ""
    """The model's name there."""
    budget: Limits = Limits()
    """What may be used up in all, resumed runs included."""
    prices: str = ""
    """TOML file with prices per million tokens; needed for a limit on money."""
    cache: bool = True
    """Keep answers, so that the same question is never paid twice."""

    def __post_init__(self) -> None:
        """Refuse half an endpoint."""
        if bool(self.url) != bool(self.model):
            missing = "model name" if self.url else "URL"
            raise ConfigError(
                f"an endpoint needs both a URL and a model name; the {missing} is missing"
            )


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """A chat model ready to be asked, and what stands behind it."""

    chat: EndpointChat | CachedChat
    endpoint: EndpointChat
    budget: Budget
    price: Price | None
    """None: not known; then what was spent is not known either."""


def connect(settings: EndpointSettings, folder: Path, *, name: str) -> Connection:
    """Return the endpoint of the settings; accounts and answers are kept in `folder`.

    Raises `ConfigError` when there is no endpoint, or a limit on money and no known price.
    """
    if not settings.url:
        raise ConfigError("no endpoint given; set its URL and the model's name")
    price = load_prices(settings.prices).find(settings.model) if settings.prices else None
    budget = Budget(
        settings.budget,
        price=price,
        model=settings.model,
        path=folder / f"{name}.spent.jsonl",
    )
    endpoint = EndpointChat(settings.url, settings.model, budget=budget)
    chat: EndpointChat | CachedChat = endpoint
    if settings.cache:
        chat = CachedChat(endpoint, folder / f"{name}.answers.jsonl")
    return Connection(chat=chat, endpoint=endpoint, budget=budget, price=price)

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from dreamgym.config import (
    build_config,
    changed_keys,
    describe,
    dump_config,
    load_config,
    redact,
)
from dreamgym.errors import ConfigError


class Learning(msgspec.Struct, frozen=True, kw_only=True):
    """How to learn."""

    learning_rate: float = 1e-4
    """Step size
    of the optimiser."""
    epochs: int = 1
    kind: Literal["ppo", "grpo"] = "grpo"

    def __post_init__(self) -> None:
        if self.learning_rate <= 0:
            raise ConfigError(f"learning_rate must be positive; got {self.learning_rate}")


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a model answers."""

    url: str = ""
    api_key: str = ""
    headers: dict[str, str] = {}
    num_memory_tokens: int = 12


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    name: str = "run"
    rl: Learning = Learning()
    endpoint: Endpoint | None = None
    sizes: tuple[int, ...] = (1, 2)
    limit: int | None = 5


def recipe(folder: Path, text: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_overrides_win_over_the_recipe_and_the_recipe_over_defaults(tmp_path: Path) -> None:
    path = recipe(tmp_path, "name = 'a'\n[rl]\nlearning_rate = 0.5\nepochs = 3\n")
    config = load_config(Config, path, ["rl.epochs=4"])
    assert config == Config(name="a", rl=Learning(learning_rate=0.5, epochs=4))


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("rl.learning_rate=1e-4", Config(rl=Learning(learning_rate=1e-4))),
        ("rl.learning_rate=1", Config(rl=Learning(learning_rate=1.0))),
        ("name=007", Config(name="007")),
        ("name='a = b'", Config(name="a = b")),
        ("name=a=b", Config(name="a=b")),
        ("sizes=[3, 4]", Config(sizes=(3, 4))),
        ("limit=none", Config(limit=None)),
        ("endpoint.url=http://localhost", Config(endpoint=Endpoint(url="http://localhost"))),
        ("endpoint.headers.X-Team=red", Config(endpoint=Endpoint(headers={"X-Team": "red"}))),
    ],
)
def test_an_override_is_read_as_its_field_wants_it(override: str, expected: Config) -> None:
    assert load_config(Config, None, [override]) == expected


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("rl.learning_rat=1", "unknown configuration key 'learning_rat'; did you mean "
         "'learning_rate'.*at 'rl.learning_rat'"),
        ("nam=x", "did you mean 'name'"),
        ("rl.epochs=many", r"rl\.epochs must be int; got 'many'"),
        ("rl.epochs=1.5", r"rl\.epochs must be int; got 1\.5"),
        ("rl.kind=dqn", "rl.kind: Invalid enum value 'dqn'"),
        ("sizes=[1, 'x']", r"sizes\[1\] must be int; got 'x'"),
        ("rl.learning_rate=-1", "learning_rate must be positive; got -1"),
        ("rl", "override 'rl' is not of the form key.path=value"),
        ("name.first=x", "'name' is a single value, not a section"),
        ("endpoint.num_memory_token=1", "did you mean 'num_memory_tokens'"),
    ],
)  # fmt: skip
def test_a_bad_override_is_one_sentence_with_path_value_and_expectation(
    override: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(Config, None, [override])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[rl]\nepoch = 3\n", "did you mean 'epochs'"),
        ("rl = 3\n", "rl must be object; got 3"),
        ("rl = \n", "is not valid TOML"),
    ],
)
def test_a_bad_recipe_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(Config, recipe(tmp_path, text))


def test_a_missing_recipe_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml' does not exist"):
        load_config(Config, tmp_path / "none.toml")


def test_a_dumped_config_builds_the_same_config() -> None:
    config = load_config(Config, None, ["rl.epochs=7", "endpoint.url=x"])
    assert build_config(Config, json.loads(json.dumps(dump_config(config)))) == config


def test_sec_05_secrets_are_blanked_and_num_memory_tokens_is_not() -> None:
    endpoint = Endpoint(
        url="https://me:sk-test-123@host/v1",
        api_key="sk-test-123",
        headers={"Authorization": "Bearer sk-test-123", "X-Team": "red"},
    )
    dumped = dump_config(Config(endpoint=endpoint))
    assert "sk-test-123" not in json.dumps(dumped)
    assert dumped["endpoint"] == {
        "url": "https://***@host/v1",
        "api_key": "***",
        "headers": {"Authorization": "***", "X-Team": "red"},
        "num_memory_tokens": 12,
    }
    assert dump_config(Config(endpoint=Endpoint()))["endpoint"]["api_key"] == ""


@pytest.mark.parametrize(
    "text",
    [
        "401 for key sk-test-123",
        "GET https://me:sk-test-123@host/v1",
        "GET https://sk-test-123@host/v1",
        "Authorization: Bearer sk-test-123",
        "{'authorization': 'Bearer qq-test-123'}",
        "api_key=qq-test-123&x=1",
        '"api-key": "qq-test-123"',
    ],
)
def test_sec_05_secrets_are_redacted_from_text(text: str) -> None:
    cleaned = redact(text)
    assert "test-123" not in cleaned
    assert "***" in cleaned


@pytest.mark.parametrize("text", ["num_memory_tokens=12", "https://host/a@b", "take token 1"])
def test_sec_05_harmless_text_is_left_alone(text: str) -> None:
    assert redact(text) == text


def test_fields_are_described_by_their_docstrings() -> None:
    docs = {doc.path: doc for doc in describe(Config)}
    assert docs["rl.learning_rate"].doc == "Step size of the optimiser."
    assert docs["rl.learning_rate"].default == "0.0001"
    assert docs["name"].type == "str"
    assert list(docs)[:2] == ["name", "rl.learning_rate"]


def test_changed_keys_are_dotted_paths() -> None:
    old, new = dump_config(Config()), dump_config(Config(rl=Learning(epochs=2), name="b"))
    assert changed_keys(old, new) == ["name", "rl.epochs"]
    assert changed_keys(old, old) == []

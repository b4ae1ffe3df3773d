"""What abstraction keeps and saves: `python -m benchmarks.abstraction [--json]`.

On 50 stored pages (see `abstraction_pages`): the share of pages on which the element needed next
is still there, and tokens after against before.  A token is counted as a run of up to four
letters or digits, or one other sign, which is close to what byte-pair vocabularies make of web
text; `--tokenizer FOLDER` counts with a Hugging Face tokenizer instead.  With `--golden` (episodes
recorded from WebShop) the same is measured on real pages at every step of successful episodes.
Every figure comes with its limit.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.abstraction_pages import StoredPage, stored_pages

from dreamgym.abstraction import AbstractionSettings, RuleMapper
from dreamgym.types import Observation

KEPT_LIMIT = 0.98

_TOKEN = re.compile(r"[^\W_]{1,4}|[^\w\s]|_")

Count = Callable[[str], int]


def count_tokens(text: str) -> int:
    """Return the number of tokens by the rule above."""
    return len(_TOKEN.findall(text))


def is_kept(text: str, needed: str) -> bool:
    """Return whether an id stands in an abstract state, in the spelling of the page."""
    return f"[{needed}]" in text


def measure(
    pages: Iterable[StoredPage], settings: AbstractionSettings, count: Count
) -> dict[str, Any]:
    """Return shares and ratios over pages, and the names of those that lost what was needed."""
    mapper = RuleMapper(settings)
    lost, before, after, number = [], 0, 0, 0
    began = time.perf_counter()
    for page in pages:
        mapped = mapper.map(Observation(text=page.text, actions=page.actions), page.instruction)
        number += 1
        before += count(page.text)
        after += count(mapped.text)
        if not is_kept(mapped.text, page.needed):
            lost.append(page.name)
    seconds = time.perf_counter() - began
    return {
        "pages": number,
        "needed_kept": (number - len(lost)) / max(number, 1),
        "lost": lost,
        "tokens_before": before,
        "tokens_after": after,
        "token_ratio": after / max(before, 1),
        "ms_per_page": 1e3 * seconds / max(number, 1),
    }


def recorded_pages(golden: Path) -> list[StoredPage]:
    """Return the pages of successful WebShop episodes with the click that followed."""
    from dreamgym.envs.household.official import read_json

    pages = []
    for episode in read_json(golden):
        if episode["reward"] < 1:
            continue
        for place, step in enumerate(episode["steps"]):
            click = re.fullmatch(r"click\[(.*)\]", step["action"], re.DOTALL)
            if click is not None:
                spelled = _as_on_page(step["obs"], click[1])
                name = f"{episode['session']}/{place}"
                goal = episode["goal"]["instruction_text"]
                actions = tuple(f"click[{value}]" for value in step["available"]["clickables"])
                pages.append(StoredPage(name, goal, step["obs"], spelled, actions))
    return pages


def main(arguments: list[str] | None = None) -> int:
    """Print the figures; exit code 1 when too many needed elements are lost."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--max-elements", type=int, default=10, help="elements shown at most")
    parser.add_argument("--seed", type=int, default=0, help="draw the pages anew (default 0)")
    parser.add_argument("--golden", type=Path, help="recorded WebShop episodes (.json.xz)")
    parser.add_argument("--tokenizer", help="folder of a Hugging Face tokenizer")
    options = parser.parse_args(arguments)
    settings = AbstractionSettings(max_elements=options.max_elements)
    count = _counter(options.tokenizer)
    result: dict[str, Any] = {"stored": measure(stored_pages(options.seed), settings, count)}
    if options.golden is not None:
        result["recorded_webshop"] = measure(recorded_pages(options.golden), settings, count)
    result["needed_kept_limit"] = KEPT_LIMIT
    result["is_within_limits"] = result["stored"]["needed_kept"] >= KEPT_LIMIT
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        for name, figures in result.items():
            print(name, figures)
    return 0 if result["is_within_limits"] else 1


def _counter(folder: str | None) -> Count:
    if folder is None:
        return count_tokens
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))


def _as_on_page(text: str, click: str) -> str:
    """Return what was clicked in the spelling of the page."""
    parts = [part.strip() for part in text.split("[SEP]")]
    return next((part for part in parts if part.casefold() == click.casefold()), click)


if __name__ == "__main__":
    sys.exit(main())

"""The mixture of training examples: reproducible, in its shares, consistently renumbered."""

from __future__ import annotations

import functools
import json
import re
from collections import Counter

import pytest
from dream_worlds import READER, logs

from dreamgym.dream.annotate import AnnotateConfig, AnnotatedTransition, Annotator, scenario_tasks
from dreamgym.dream.examples import ChatExample, ExampleConfig, ExampleStream, renumber
from dreamgym.dream.prompt import PromptConfig, step_messages
from dreamgym.dream.reply import parse_reply
from dreamgym.llm.base import Message
from dreamgym.seeds import derive_random

PROMPT = PromptConfig(style="compact", neighbours=0)
PLAIN = ExampleConfig(renumber=0.0, conflict_share=0.0)


@functools.cache
def examples() -> tuple[AnnotatedTransition, ...]:
    annotator = Annotator(
        READER,
        scenario_tasks(logs(), READER),
        buffer=None,
        config=AnnotateConfig(negatives=2, neighbours=0),
    )
    return tuple(example for rollout in logs() for example in annotator.annotate(rollout))


def stream(config: ExampleConfig, seed: int = 0) -> ExampleStream:
    return ExampleStream(examples(), PROMPT, config, seed=seed)


def test_a_draw_depends_only_on_the_seed_and_its_number() -> None:
    config = ExampleConfig()
    one = stream(config)
    forwards = [one.draw(i) for i in range(40)]
    other = stream(config)
    assert [other.draw(i) for i in reversed(range(40))] == forwards[::-1]
    assert [stream(config, seed=1).draw(i) for i in range(40)] != forwards
    assert len({example.target for example in forwards}) > 10


def kinds(config: ExampleConfig, count: int) -> Counter[str]:
    """Count the groups drawn, told apart by what the examples say."""
    made = {
        step_messages(PROMPT, e.context)[-1].content: (
            "negative" if e.is_negative else "success" if e.done else "step"
        )
        for e in examples()
    }
    source = stream(config)
    return Counter(made[source.draw(i).messages[-1].content] for i in range(count))


@pytest.mark.parametrize(("negative", "success"), [(0.35, 0.06), (0.5, 0.3), (0.0, 0.0)])
def test_kinds_of_example_come_in_their_shares(negative: float, success: float) -> None:
    count = 1500
    config = ExampleConfig(
        negative_share=negative, success_share=success, renumber=0.0, conflict_share=0.0
    )
    drawn = kinds(config, count)
    assert drawn["negative"] / count == pytest.approx(negative, abs=0.05)
    assert drawn["success"] / count == pytest.approx(success, abs=0.05)
    assert drawn["step"] / count == pytest.approx(1 - negative - success, abs=0.06)


def test_a_group_without_examples_is_replaced_by_plain_steps() -> None:
    steps = [e for e in examples() if not e.is_negative and not e.done]
    config = ExampleConfig(negative_share=0.5, success_share=0.5)
    found = ExampleStream(steps, PROMPT, config, seed=0)
    assert all('"reward":0' in found.draw(i).target for i in range(20))


def test_nothing_to_train_on_is_refused() -> None:
    with pytest.raises(ValueError, match="no annotated transitions"):
        ExampleStream([], PROMPT, PLAIN, seed=0)


def test_the_conflict_share_asks_again_with_a_stated_fact() -> None:
    source = stream(ExampleConfig(conflict_share=1.0, renumber=0.0, success_share=0.2))
    plain = stream(ExampleConfig(conflict_share=0.0, renumber=0.0, success_share=0.2))
    found = 0
    for index in range(200):
        asked, first = source.draw(index), plain.draw(index)
        assert asked.target == first.target
        if len(asked.messages) == 1:
            continue  # no wrong answer was kept for this example
        found += 1
        question, wrong, complaint = asked.messages
        assert question == first.messages[0]
        assert wrong.role == "assistant"
        reply = parse_reply(wrong.content)
        right = parse_reply(asked.target).next_state
        assert (reply.reward, reply.done) == (0.0, False)
        assert complaint.role == "user"
        assert re.fullmatch(r"conflict: .+ answer again\.", complaint.content)
        if first.kind.endswith("/none"):
            continue
        # one entity was exchanged, nothing else
        pairs = zip(ENTITY.findall(reply.next_state), ENTITY.findall(right), strict=True)
        assert sum(one != other for one, other in pairs) == 1
        assert ENTITY.sub("#", reply.next_state) == ENTITY.sub("#", right)
    assert found > 3


ENTITY = re.compile(r"[a-z]+ \d+")


def words(example: ChatExample) -> str:
    return "\n".join([*(m.content for m in example.messages), example.target])


def test_renumbering_is_one_permutation_per_word_everywhere() -> None:
    before, after = (
        stream(ExampleConfig(renumber=share, conflict_share=0.3, success_share=0.3))
        for share in (0.0, 1.0)
    )
    changed = 0
    for index in range(60):
        old, new = words(before.draw(index)), words(after.draw(index))
        assert ENTITY.sub("#", old) == ENTITY.sub("#", new)
        table: dict[str, str] = {}
        for one, other in zip(ENTITY.findall(old), ENTITY.findall(new), strict=True):
            assert one.split()[0] == other.split()[0]
            assert table.setdefault(one, other) == other, "renamed in two ways"
        assert len(set(table.values())) == len(table), "two entities became one"
        changed += old != new
    assert changed > 40


def test_renumbering_keeps_reward_done_and_what_the_answer_means() -> None:
    before, after = (
        stream(ExampleConfig(renumber=share, conflict_share=0.0, success_share=0.4))
        for share in (0.0, 1.0)
    )
    for index in range(60):
        old, new = before.draw(index), after.draw(index)
        one, other = parse_reply(old.target), parse_reply(new.target)
        assert (one.reward, one.done, one.success) == (other.reward, other.done, other.success)
        assert old.kind == new.kind
        action = new.messages[-1].content.rpartition("action: ")[2]
        assert READER.action_kind(action) == new.kind.removesuffix("/none")
        assert READER.is_no_effect(other.next_state) == new.kind.endswith("/none")


def test_renumbering_reaches_entities_behind_an_escaped_line_break() -> None:
    target = json.dumps({"next_state": "You look.\ndrawer 1 is open. drawer 2 is shut."})
    for seed in range(8):
        asked = [Message("user", "open drawer 1, not drawer 2")]
        messages, renamed = renumber(asked, target, derive_random(seed))
        shown = ENTITY.findall(messages[0].content)
        assert ENTITY.findall(json.loads(renamed)["next_state"]) == shown


def test_renumbering_leaves_numbers_that_name_nothing_alone() -> None:
    text = 'take pen 1: {"next_state":"Done.","reward":1,"done":true}, 2 in all'
    seen = set()
    for seed in range(24):
        messages, target = renumber([Message("user", text)], text, derive_random(seed))
        assert messages[0].content == target
        assert target.endswith(': {"next_state":"Done.","reward":1,"done":true}, 2 in all')
        seen.add(target[:10])
    assert seen == {"take pen 1", "take pen 2", "take pen 3"}


def test_long_listings_are_drawn_more_often_on_request() -> None:
    def entities(share: float) -> float:
        plain = ExampleConfig(
            renumber=0.0, conflict_share=0.0, negative_share=0.0, success_share=0.0,
            long_share=share,
        )  # fmt: skip
        drawn = [stream(plain).draw(i).target for i in range(300)]
        listed = [re.findall(r"[a-z]+ \d+", text.partition("next_state")[2]) for text in drawn]
        return sum(map(len, listed)) / len(listed)

    assert entities(1.0) > 1.2 * entities(0.0)

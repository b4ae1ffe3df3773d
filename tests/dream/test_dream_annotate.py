"""Logs become examples: nothing from the future, free negatives that are true, honest labels."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from dream_worlds import READER, Found, ListBuffer, logs, real_suite
from msgspec.structs import replace

from dreamgym.dream.annotate import (
    AnnotateConfig,
    AnnotatedTransition,
    Annotator,
    scenario_tasks,
)
from dreamgym.envs.base import Facts
from dreamgym.types import Rollout, Task, Transition


def annotated(
    rollout: Rollout, *, tasks: dict[str, Task] | None = None, **options: int
) -> list[AnnotatedTransition]:
    config = AnnotateConfig(**{"neighbours": 0, **options})
    known = tasks if tasks is not None else scenario_tasks(logs(), READER)
    return Annotator(READER, known, buffer=None, config=config).annotate(rollout)


def facts_along(rollout: Rollout) -> list[Facts]:
    """Return the facts before each transition and after the last."""
    facts = READER.initial(scenario_tasks(logs(), READER)[rollout.task.id])
    found = [facts]
    for transition in rollout.transitions:
        facts = READER.update(facts, transition.action, transition.next_observation.text)
        found.append(facts)
    return found


def by_step(
    rollout: Rollout, examples: list[AnnotatedTransition]
) -> Iterator[tuple[int, AnnotatedTransition]]:
    """Yield each example with the step of the transition it was made from."""
    step = -1
    for example in examples:
        is_logged = not example.is_negative and (
            example.context.task.instruction == rollout.task.instruction
        )
        step += is_logged
        yield step, example


def test_each_logged_transition_becomes_one_example_with_its_own_outcome() -> None:
    for rollout in logs()[:6]:
        examples = annotated(rollout, negatives=0, relabel=0)
        assert len(examples) == len(rollout.transitions)
        for example, transition in zip(examples, rollout.transitions, strict=True):
            assert example.context.action == transition.action
            assert example.next_text == READER.natural(transition.next_observation.text)
            assert (example.reward, example.done) == (
                float(transition.success),
                transition.success,
            )
            assert example.episode_id == transition.episode_id


def test_known_lines_come_from_the_facts_before_the_step() -> None:
    for rollout in logs()[::3]:
        facts = facts_along(rollout)
        for step, example in by_step(rollout, annotated(rollout)):
            assert example.context.known == READER.relevant(facts[step], example.context.action)
    takes = [
        example
        for rollout in logs()
        for example in annotated(rollout, negatives=0, relabel=0)
        if example.next_text.startswith("You pick up")
    ]
    assert takes
    assert all("holding: nothing" in example.context.known for example in takes)


def test_the_past_ends_before_the_step_and_is_cut_to_its_length() -> None:
    rollout = logs()[0]
    for step, example in by_step(rollout, annotated(rollout, history=2)):
        before = rollout.transitions[max(step - 2, 0) : step]
        assert [turn.action for turn in example.context.history] == [t.action for t in before]
        assert [turn.text for turn in example.context.history] == [
            READER.natural(t.next_observation.text) for t in before
        ]
    assert all(not e.context.history for e in annotated(rollout, history=0))


def test_free_negatives_are_not_in_the_logged_admissible_list_and_say_nothing_happens() -> None:
    for rollout in logs()[:4]:
        count = 0
        for step, example in by_step(rollout, annotated(rollout, negatives=3)):
            if not example.is_negative:
                continue
            count += 1
            assert example.context.action not in (
                rollout.transitions[step].observation.actions or ()
            )
            assert example.next_text == "Nothing happens."
            assert (example.reward, example.done) == (0.0, False)
            assert example.kind.endswith("/none")
        assert count == 3 * len(rollout.transitions)


def test_free_negatives_are_true_in_the_real_game() -> None:
    rollout = min(logs(), key=lambda r: len(r.transitions))
    negatives = [
        (step, example.context.action)
        for step, example in by_step(rollout, annotated(rollout, negatives=4))
        if example.is_negative
    ]

    async def real_answer(step: int, action: str) -> str:
        env = real_suite().open(rollout.task, seed=0)
        await env.start()
        for transition in rollout.transitions[:step]:
            await env.step(transition.action)
        return (await env.step(action)).observation.text

    assert len(negatives) == 4 * len(rollout.transitions)
    for step, action in negatives:
        assert asyncio.run(real_answer(step, action)) == "Nothing happens.", action


def test_no_negatives_without_a_logged_admissible_list() -> None:
    rollout = logs()[0]
    blind = replace(
        rollout,
        transitions=tuple(
            replace(t, observation=replace(t.observation, actions=None))
            for t in rollout.transitions
        ),
    )
    assert not any(example.is_negative for example in annotated(blind, negatives=3))


def tasks_with_every_move() -> dict[str, Task]:
    """Return the logged tasks, and one task per object that was put down anywhere."""
    tasks = scenario_tasks(logs(), READER)
    some = next(iter(tasks.values()))
    moves = {t.action.split()[1] + " in " + t.action.split()[4] for t in moved()}
    for move in sorted(moves):
        tasks[move] = replace(some, id=move, instruction=f"put a {move}.")
    return tasks


def moved() -> list[Transition]:
    return [t for r in logs() for t in r.transitions if t.action.startswith("move ")]


def test_relabelled_rewards_agree_with_the_reader() -> None:
    rewards = []
    tasks = tasks_with_every_move()
    for rollout in logs():
        facts = facts_along(rollout)
        examples = annotated(rollout, tasks=tasks, negatives=0, relabel=2)
        for step, example in by_step(rollout, examples):
            task = example.context.task
            if task.instruction == rollout.task.instruction:
                continue
            transition = rollout.transitions[step]
            assert example.context.action == transition.action
            assert example.next_text == READER.natural(transition.next_observation.text)
            assert READER.achieved(task, facts[step]) is False
            assert READER.achieved(task, facts[step + 1]) is example.done
            assert example.reward == float(example.done)
            rewards.append(example.reward)
    assert set(rewards) == {0.0, 1.0}


def test_a_sentence_the_reader_cannot_read_is_never_used_for_a_label() -> None:
    tasks = tasks_with_every_move()
    some = next(iter(tasks.values()))
    odd = {f"make the room look nice, {i} times." for i in range(200)}
    tasks |= {text: replace(some, id=text, instruction=text) for text in odd}
    used = {
        example.context.task.instruction
        for rollout in logs()
        for example in annotated(rollout, tasks=tasks, negatives=0, relabel=2)
    }
    assert len(used) > 1
    assert not used & odd


def test_relabel_0_leaves_only_the_logged_task() -> None:
    for rollout in logs()[:3]:
        used = {e.context.task.instruction for e in annotated(rollout, relabel=0)}
        assert used == {rollout.task.instruction}


def test_annotation_depends_only_on_seed_and_episode() -> None:
    one, other = logs()[0], logs()[1]
    tasks = scenario_tasks(logs(), READER)
    annotator = Annotator(READER, tasks, buffer=None, config=AnnotateConfig(neighbours=0))
    first = annotator.annotate(one)
    annotator.annotate(other)
    assert annotator.annotate(one) == first
    assert annotated(one, seed=1) != first


def test_a_scenario_is_made_only_from_episodes_of_its_own_game() -> None:
    everything = scenario_tasks(logs(), READER)
    games = {rollout.task.id for rollout in logs()}
    assert set(everything) == games
    for game in games:
        own = [rollout for rollout in logs() if rollout.task.id == game]
        assert scenario_tasks(own, READER) == {game: everything[game]}


def test_games_held_out_stay_out_of_the_examples_of_the_others() -> None:
    games = sorted({rollout.task.id for rollout in logs()})
    heldout = set(games[:2])
    fitting = [rollout for rollout in logs() if rollout.task.id not in heldout]
    tasks = scenario_tasks(fitting, READER)
    assert not heldout & set(tasks)
    for rollout in fitting:
        for example in annotated(rollout, tasks=tasks):
            assert example.context.task.id == rollout.task.id
            assert example.episode_id == rollout.transitions[0].episode_id
    with pytest.raises(KeyError):
        annotated(next(r for r in logs() if r.task.id in heldout), tasks=tasks)


def test_an_episode_without_transitions_has_no_scenario() -> None:
    empty = replace(logs()[0], transitions=())
    assert scenario_tasks([empty], READER) == {}


def test_demonstrations_come_from_the_same_suite_and_never_from_the_game_itself() -> None:
    excluded: set[tuple[str, str | None]] = set()

    class Asked(ListBuffer):
        def query(
            self,
            state: str,
            action: str,
            *,
            k: int,
            suite: str,
            exclude_task: str | None = None,
        ) -> list[Found]:
            excluded.add((suite, exclude_task))
            return super().query(state, action, k=k, suite=suite, exclude_task=exclude_task)

    rollout = logs()[0]
    buffer = Asked([t for r in logs() for t in r.transitions])
    annotator = Annotator(
        READER,
        scenario_tasks(logs(), READER),
        buffer=buffer,  # type: ignore[arg-type]  # anything with the same `query` will do
        config=AnnotateConfig(neighbours=2),
    )
    shown: list[Transition] = []
    for example in annotator.annotate(rollout):
        assert len(example.context.neighbours) == 2
        shown += example.context.neighbours
    assert excluded == {("household", rollout.task.id)}
    assert all(t.task_id != rollout.task.id for t in shown)


def test_the_past_is_worded_as_the_answers_are_learned() -> None:
    """In a dream the past is made of answers, so a log's own order of things must not show."""
    rollout = max(logs(), key=lambda r: len(r.transitions))

    def turned(text: str) -> str:
        head, found, listed = text.partition("you see ")
        names, end, rest = listed.partition(".")
        return (
            head
            + found
            + ", ".join(reversed(names.replace(", and ", ", ").split(", ")))
            + end
            + rest
        )

    other = replace(
        rollout,
        transitions=tuple(
            replace(
                t,
                next_observation=replace(t.next_observation, text=turned(t.next_observation.text)),
            )
            for t in rollout.transitions
        ),
    )
    assert other != rollout
    one, two = (annotated(r, negatives=0, relabel=0, history=2) for r in (rollout, other))
    assert [e.context.history for e in two] == [e.context.history for e in one]
    assert [e.next_text for e in two] == [e.next_text for e in one]

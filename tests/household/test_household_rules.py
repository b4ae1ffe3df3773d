"""The rules on a small hand-written room, and properties over generated ones."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dreamgym.envs.household.dialect import to_admissible
from dreamgym.envs.household.game import HouseholdGame
from dreamgym.envs.household.generator import GameId, generate_game
from dreamgym.envs.household.state import HouseState
from dreamgym.envs.household.world import KINDS, LOOK, SIMPLE, Goal, Receptacle, Start, Thing, World

FITS = {
    (place, thing)
    for place in ("bin", "desk", "shelf", "fridge", "microwave", "sinkbasin", "drawer")
    for thing in ("onion", "pencil", "mug", "knife", "apple")
} - {("drawer", "apple")}


def room(goal: Goal | None = None) -> World:
    """Receptacles: bin 2, desk 1, drawer 1 (beside the desk), fridge, microwave, sinkbasin."""
    receptacles = [
        Receptacle("bin 2", "bin", 0),
        Receptacle("desk 1", "desk", 1),
        Receptacle("drawer 1", "drawer", 1, True),
        Receptacle("fridge 1", "fridge", 2, True),
        Receptacle("microwave 1", "microwave", 3, True),
        Receptacle("sinkbasin 1", "sinkbasin", 4),
    ]
    things = [
        Thing("apple 1", "apple", cleanable=True, heatable=True, coolable=True, sliceable=True),
        Thing("desklamp 1", "desklamp", portable=False, switchable=True),
        Thing("knife 1", "knife"),
        Thing("mug 1", "mug", cleanable=True, heatable=True, coolable=True, vessel=True),
        Thing("onion 1", "onion"),
        Thing("pencil 1", "pencil"),
    ]
    start = Start(
        contents=((), (0, 1, 2), (5,), (3,), (), (4,)),
        place=9,
        object_places=tuple(frozenset({p}) for p in (1, 1, 1, 2, 4, 1)),
    )
    return World(
        task="put a onion in bin.",
        receptacles=receptacles,
        things=things,
        goal=goal or Goal(kind=SIMPLE, object_kind="onion", target_kind="bin"),
        start=start,
        fits=FITS,
    )


def play(world: World, *commands: str) -> HouseholdGame:
    game = HouseholdGame(world)
    for command in commands:
        text, *_ = game.step(command)
        assert text != "Nothing happens.", command
    return game


def snapshot(state: HouseState) -> tuple[object, ...]:
    return (
        state.place, frozenset(state.opened), tuple(state.contents), tuple(state.object_places),
        state.held, frozenset(state.clean), frozenset(state.hot), frozenset(state.cool),
        frozenset(state.sliced), frozenset(state.toggled), state.taken,
    )  # fmt: skip


def test_the_first_observation_has_welcome_room_and_task() -> None:
    assert HouseholdGame(room()).first() == (
        "-= Welcome to TextWorld, ALFRED! =-\n\n"
        "You are in the middle of a room. Looking quickly around you, you see a bin 2, a desk 1, "
        "a drawer 1, a fridge 1, a microwave 1, and a sinkbasin 1.\n\n"
        "Your task is to: put a onion in bin."
    )


def test_taking_and_putting_the_goal_object_wins_with_reward_one() -> None:
    game = play(room(), "go to sinkbasin 1", "take onion 1 from sinkbasin 1", "go to bin 2")
    assert game.step("move onion 1 to bin 2") == (
        "You move the onion 1 to the bin 2.",
        1.0,
        True,
        True,
    )


def test_an_illegal_action_changes_nothing_and_says_so() -> None:
    game = play(room(), "go to desk 1")
    before = snapshot(game.state)
    for command in ("go to desk 1", "take pencil 1 from drawer 1", "open desk 1", "use apple 1",
                    "take desklamp 1 from desk 1", "take onion 1 from sinkbasin 1"):  # fmt: skip
        assert game.step(command) == ("Nothing happens.", 0.0, False, False)
    assert snapshot(game.state) == before


def test_a_closed_receptacle_hides_its_objects_until_it_is_opened() -> None:
    game = play(room(), "go to fridge 1")
    assert game.step("examine fridge 1")[0] == "The fridge 1 is closed."
    assert "take mug 1 from fridge 1" not in game.admissible()
    text = "You open the fridge 1. The fridge 1 is open. In it, you see a mug 1."
    assert game.step("open fridge 1")[0] == text
    assert "take mug 1 from fridge 1" in game.admissible()
    assert game.step("close fridge 1")[0] == "You close the fridge 1."
    assert "take mug 1 from fridge 1" not in game.admissible()


def test_only_one_object_can_be_held() -> None:
    game = play(room(), "go to desk 1", "take apple 1 from desk 1")
    assert not [a for a in game.admissible() if a.startswith("take")]
    assert game.step("inventory")[0] == "You are carrying: a apple 1."


def test_heating_cools_no_longer_and_cleaning_stays() -> None:
    game = play(
        room(), "go to desk 1", "take apple 1 from desk 1", "go to sinkbasin 1",
        "clean apple 1 with sinkbasin 1", "go to fridge 1", "cool apple 1 with fridge 1",
    )  # fmt: skip
    assert game.step("examine apple 1")[0] == "This is a cool and clean apple 1."
    game.step("go to microwave 1")
    assert game.step("heat apple 1 with microwave 1")[0] == (
        "You heat the apple 1 using the microwave 1."
    )
    assert game.step("examine apple 1")[0] == "This is a hot and clean apple 1."


def test_an_only_cool_object_is_called_cold_and_a_mug_normal() -> None:
    game = play(room(), "go to desk 1", "take apple 1 from desk 1", "go to fridge 1",
                "cool apple 1 with fridge 1")  # fmt: skip
    assert game.step("examine apple 1")[0] == "This is a cold apple 1."
    game = play(room(), "go to fridge 1", "open fridge 1", "take mug 1 from fridge 1")
    assert game.step("examine mug 1")[0] == "This is a normal mug 1. In it, you see nothing."


def test_slicing_needs_a_knife_in_hand_and_the_object_at_the_place() -> None:
    game = play(room(), "go to desk 1", "take knife 1 from desk 1")
    assert game.step("slice apple 1 with knife 1")[0] == "You sliced the apple 1 with the knife 1."
    game.step("go to bin 2")
    assert "slice apple 1 with knife 1" not in game.admissible()


def test_an_object_that_fits_nowhere_here_cannot_be_put_here() -> None:
    game = play(room(), "go to desk 1", "open drawer 1", "take apple 1 from desk 1")
    assert "move apple 1 to drawer 1" not in game.admissible()
    assert "move apple 1 to desk 1" in game.admissible()


def test_looking_names_neighbours_and_objects_moved_between_them() -> None:
    game = play(room(), "go to desk 1")
    assert game.step("look")[0] == (
        "You are facing the desk 1, and drawer 1. Next to it, you see nothing."
    )
    for command in ("open drawer 1", "take knife 1 from desk 1", "move knife 1 to drawer 1"):
        game.step(command)
    assert game.step("look")[0].endswith("Next to it, you see a knife 1.")
    assert HouseholdGame(room()).step("look")[0].endswith("you see nothing.")


def test_the_lamp_goal_needs_the_object_in_hand_beside_a_lamp_that_is_on() -> None:
    goal = Goal(kind=LOOK, object_kind="apple", target_kind="desklamp")
    game = play(room(goal), "go to desk 1", "use desklamp 1")
    assert game.step("take apple 1 from desk 1")[3] is True
    assert game.step("go to bin 2")[1:] == (0.0, False, False)
    assert game.step("go to desk 1")[1:] == (1.0, True, True)


def test_par_06_old_dialects_reach_the_admissible_form_and_names_keep_their_letters() -> None:
    old = {"put onion 1 in/on bin 2", "put pencil 1 in/on desk 1", "put mug 1 in/on shelf 1"}
    new = {"move onion 1 to bin 2", "move pencil 1 to desk 1", "move mug 1 to shelf 1"}
    for said, of_new, of_old in (
        ("put onion 1 in bin 2", "move onion 1 to bin 2", "put onion 1 in/on bin 2"),
        ("put pencil 1 on desk 1", "move pencil 1 to desk 1", "put pencil 1 in/on desk 1"),
        ("put mug 1 in/on shelf 1", "move mug 1 to shelf 1", "put mug 1 in/on shelf 1"),
        ("move mug 1 to shelf 1", "move mug 1 to shelf 1", "put mug 1 in/on shelf 1"),
        ("  Put  Mug 1 IN/ON shelf 1 ", "move mug 1 to shelf 1", "put mug 1 in/on shelf 1"),
    ):
        assert to_admissible(said, new.__contains__) == of_new
        assert to_admissible(said, old.__contains__) == of_old
    assert to_admissible("put mug 1 in/on fridge 1", new.__contains__) is None


def test_par_06_the_engine_itself_understands_the_old_dialects() -> None:
    game = play(room(), "go to sinkbasin 1", "Take Onion 1  from sinkbasin 1", "go to bin 2")
    assert game.copy().step("put onion 1 in/on bin 2")[0] == "You move the onion 1 to the bin 2."
    assert game.copy().step("put onion 1 in bin 2")[3] is True
    assert game.copy().step("put onion 1 in desk 1")[0] == "Nothing happens."
    strict = HouseholdGame(room(), dialects=False)
    assert strict.step("GO TO desk 1")[0] == "Nothing happens."


game_ids = st.builds(
    lambda size, split, index, kind: str(
        GameId(size=size, seed=0, split=split, index=index, kind=kind)
    ),
    st.sampled_from(("small", "full")),
    st.sampled_from(("train", "valid_unseen")),
    st.integers(0, 40),
    st.sampled_from(KINDS),
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(game_ids, st.lists(st.integers(0, 10_000), max_size=25))
def test_every_admissible_command_does_something_and_is_sorted(
    game_id: str, choices: list[int]
) -> None:
    game = HouseholdGame(generate_game(game_id).world)
    for choice in choices:
        actions = game.admissible()
        assert actions == sorted(set(actions))
        for action in actions:
            assert game.copy().step(action)[0] != "Nothing happens.", action
        game.step(actions[choice % len(actions)])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.one_of(
        st.text(max_size=60),
        st.lists(
            st.sampled_from(
                ("put", "move", "take", "in/on", "desk 1", "apple 1", "__import__('os')")
            ),
            max_size=6,
        ).map(" ".join),
    )
)
def test_any_text_is_answered_and_only_admissible_text_changes_anything(text: str) -> None:
    game = play(room(), "go to desk 1")
    before = snapshot(game.state)
    meant = game.resolve(text)
    answer, reward, done, won = game.step(text)
    assert (reward, done, won) == (0.0, False, False)
    if meant is None:
        assert answer == "Nothing happens."
        assert snapshot(game.state) == before
    else:
        assert answer != "Nothing happens."


def test_very_long_text_is_answered_at_once() -> None:
    game = play(room(), "go to desk 1")
    for text in ("put " * 200_000, "put a" + " 1 in" * 100_000 + " desk 1", "\ud800\x00" * 1000):
        assert game.step(text)[0] == "Nothing happens."


def test_a_copy_has_the_same_future_and_does_not_share_it() -> None:
    game = play(room(), "go to desk 1", "take apple 1 from desk 1")
    twin = game.copy()
    twin.step("go to sinkbasin 1")
    twin.step("clean apple 1 with sinkbasin 1")
    assert game.step("examine apple 1")[0] == "There's nothing special about apple 1."
    assert twin.step("examine apple 1")[0] == "This is a clean apple 1."

"""`dreamgym train`: reinforcement learning in a dream, or in a real suite."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from dreamgym.curriculum.base import TaskSampler
from dreamgym.curriculum.sampler import UniformSampler
from dreamgym.dream.env import DreamConfig, DreamSuite
from dreamgym.envs.base import Suite
from dreamgym.errors import ConfigError
from dreamgym.pipeline.curriculum import CurriculumSettings, TaskWriter, make_curriculum
from dreamgym.pipeline.dreams import Dream, check_dream, load_dream, open_buffer
from dreamgym.pipeline.models import (
    Agent,
    load_agent,
    make_agent,
    make_learner,
    model_folder,
    save_trained,
)
from dreamgym.pipeline.settings import (
    LearningSettings,
    Options,
    PlaySettings,
    Settings,
    SuiteSettings,
)
from dreamgym.pipeline.subscribers import BufferGrower, Recorder
from dreamgym.pipeline.suites import open_suite, refuse_evaluation_split
from dreamgym.progress import progress
from dreamgym.replay.buffer import ReplayBuffer
from dreamgym.rl.algorithm import Algorithm, make_algorithm
from dreamgym.rl.learner import Learner
from dreamgym.runs import RunFolder
from dreamgym.seeds import derive_seed
from dreamgym.train import Loop, LoopConfig, Subscriber
from dreamgym.types import Origin


class UpdateSettings(Settings, frozen=True, kw_only=True):
    """How the policy is updated, the same in a dream and in reality."""

    algorithm: str = "grpo"
    """`grpo`, `gigpo` or `ppo`."""
    options: Options = msgspec.field(default_factory=dict)
    """Options of the algorithm; the group size of GRPO and GiGPO is the loop's."""
    learning: LearningSettings = LearningSettings(learning_rate=3e-4, optimizer="adamw")


class TrainSettings(Settings, frozen=True, kw_only=True):
    """What to train, and where: exactly one of `dream` and `suite.name` is set."""

    policy: str = ""
    """A model folder, or a run folder with a `model/`."""
    dream: str = ""
    """A dream folder made by `dreamgym fit`."""
    suite: SuiteSettings = SuiteSettings(name="")
    """A real suite instead of a dream."""
    split: str = "train"
    tasks: int = 200
    """Tasks of the real suite; a dream has those it was fitted on."""
    out: str = "runs/dream"
    seed: int = 0
    update: UpdateSettings = UpdateSettings()
    play: PlaySettings = PlaySettings()
    loop: LoopConfig = LoopConfig()
    episode: DreamConfig = DreamConfig(max_steps=25)
    """Dreamt episodes."""
    curriculum: CurriculumSettings = CurriculumSettings()

    def __post_init__(self) -> None:
        """Refuse what says two different things."""
        if self.dream and self.suite.name:
            raise ConfigError(
                f"train in a dream ({self.dream!r}) or in a real suite ({self.suite.name!r}), "
                "not in both; leave one out"
            )
        check_update(self.update, self.loop)


def check_places(settings: TrainSettings) -> None:
    """Raise `ConfigError` where the dream, suite or policy cannot be meant; nothing is loaded."""
    if not settings.dream and not settings.suite.name:
        raise ConfigError("nowhere to train; pass --dream FOLDER or --suite NAME")
    model_folder(settings.policy)
    if settings.dream:
        check_dream(settings.dream)


def check_update(update: UpdateSettings, loop: LoopConfig) -> Algorithm:
    """Return the algorithm; raises `ConfigError` for unknown names, options and group size 1."""
    options: dict[str, Any] = dict(update.options)
    if update.algorithm in ("grpo", "gigpo"):
        options["group_size"] = loop.group_size
    return make_algorithm(update.algorithm, **options)


class Trainee:
    """A policy with everything that updates it."""

    def __init__(
        self, name: str, update: UpdateSettings, play: PlaySettings, loop: LoopConfig
    ) -> None:
        """Load the model called `name`; raises `ConfigError` when there is none."""
        if play.temperature <= 0:
            raise ConfigError(
                f"play.temperature must be above 0 to train; got {play.temperature} (greedy "
                "attempts are all the same)"
            )
        self.algorithm = check_update(update, loop)
        loaded = load_agent(name, play)
        self.learner: Learner = make_learner(
            loaded.model,
            loaded.tokenizer,
            update.learning,
            temperature=play.temperature,
            value_head=self.algorithm.needs_values,
        )
        self.agent: Agent = loaded
        if self.learner.model is not loaded.model:  # adapters: sample from the wrapped model
            self.agent = make_agent(
                self.learner.model, loaded.tokenizer, play, name=loaded.policy.name
            )


def train_policy(settings: TrainSettings, run: RunFolder) -> dict[str, Any]:
    """Train to the end, going on from the run's last checkpoint if there is one."""
    check_places(settings)
    if settings.dream:
        return _train_in_dream(settings, load_dream(settings.dream), run)
    refuse_evaluation_split(settings.split, allow=False, purpose="training")
    suite, tasks = open_suite(settings.suite, settings.split, settings.tasks)
    sampler = UniformSampler(tasks, seed=derive_seed(settings.seed, "sampler"))
    return _run(settings, suite, sampler, run, [Recorder(run, "real")], Origin.REAL)


def dream_suite(dream: Dream, buffer: ReplayBuffer | None, episode: DreamConfig) -> DreamSuite:
    """Return the suite of a loaded dream folder."""
    return DreamSuite(
        dream.tasks,
        model=dream.experience,
        reader=dream.reader,
        buffer=buffer if dream.settings.ask.prompt.neighbours else None,
        config=episode,
    )


def _train_in_dream(settings: TrainSettings, dream: Dream, run: RunFolder) -> dict[str, Any]:
    # The run has a buffer of its own: several runs may start from one dream.
    is_new = run.load_checkpoint("dream-latest") is None
    if is_new:
        shutil.rmtree(run.path / "buffer", ignore_errors=True)  # of a start that was killed
    buffer = open_buffer(run.path / "buffer", dream.settings.buffer_capacity)
    if is_new:
        buffer.add(dream.transitions)
    episode = replace(settings.episode, max_steps=settings.loop.max_steps)
    suite = dream_suite(dream, buffer, episode)
    seed = derive_seed(settings.seed, "sampler")
    subscribers: list[Subscriber] = [Recorder(run, "dream"), BufferGrower(buffer)]
    sampler: TaskSampler
    if settings.curriculum.enabled:
        sampler = curriculum = make_curriculum(
            dream.tasks,
            dream.reader,
            dream.experience.chat,
            settings.curriculum,
            compact=dream.settings.ask.prompt.style == "compact",
            seed=seed,
        )
        subscribers.append(TaskWriter(curriculum, every=settings.curriculum.grow_every))
    else:
        sampler = UniformSampler(dream.tasks, seed=seed)
    try:
        result = _run(settings, suite, sampler, run, subscribers, Origin.DREAM)
    finally:
        buffer.close()
    rates = suite.verifier.rates() if suite.verifier else {}
    return {**result, "dream": dict(dream.experience.counters), "verifier": rates}


def _run(
    settings: TrainSettings,
    suite: Suite,
    sampler: TaskSampler,
    run: RunFolder,
    subscribers: Sequence[Subscriber],
    origin: Origin,
) -> dict[str, Any]:
    trainee = Trainee(settings.policy, settings.update, settings.play, settings.loop)
    stage = "dream" if origin is Origin.DREAM else "real"
    last: dict[str, float] = {}
    with progress(f"training ({stage})", settings.loop.iterations) as bar:

        def report(step: int, metrics: dict[str, float]) -> None:
            last.update(metrics)
            bar.advance(1, f"success {metrics['rollout/success']:.2f}")

        loop = Loop(
            suite=suite,
            policy=trainee.agent.policy,
            learner=trainee.learner,
            algorithm=trainee.algorithm,
            sampler=sampler,
            config=settings.loop,
            stage=stage,
            seed=settings.seed,
            run=run,
            origin=origin,
            publish=trainee.agent.publish,
            subscribers=subscribers,
            on_progress=report,
        )
        if loop.restore():
            bar.advance(loop.step)
        asyncio.run(loop.train())
    save_trained(trainee.learner, run.path / "model")
    return {
        "iterations": loop.step,
        "origin": origin.value,
        "success": last.get("rollout/success"),
        "fault_share": last.get("rollout/fault_share"),
    }

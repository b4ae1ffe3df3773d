"""Every number of the demo, by preset; nothing in the stages is hard-wired."""

from __future__ import annotations

from typing import Literal

import msgspec

from dreamgym.dream.annotate import AnnotateConfig
from dreamgym.dream.env import DreamConfig
from dreamgym.dream.examples import ExampleConfig
from dreamgym.dream.experience import ExperienceConfig
from dreamgym.dream.prompt import PromptConfig
from dreamgym.errors import unknown_name
from dreamgym.fit import FitConfig
from dreamgym.pipeline.curriculum import CurriculumSettings
from dreamgym.probe import ProbeConfig
from dreamgym.train import LoopConfig


class _Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Frozen and strict."""


class Levers(_Config, frozen=True, kw_only=True):
    """What keeps the dream honest, each with a switch; `--naive` turns all grounding off."""

    free_negatives: bool = True
    """Train the model on actions outside the logged admissible lists ("Nothing happens.")."""
    agent_logs: bool = True
    """Log the warm-started agent itself in training rooms, beside the experts."""
    ledger: bool = True
    """Give the model the known facts and ask again when its reply contradicts them."""
    verifier: bool = True
    """A dreamt success counts only when the task sentence holds in the ledger."""
    probe: bool = True
    """Look at reality now and then (counted), refresh the model, roll back a collapse."""
    reasoning: bool = True
    """The model writes a rationale before the next state."""
    history: bool = True
    """The model sees past turns."""
    replay: bool = True
    """The model sees similar transitions from the replay buffer."""
    worlds: bool = True
    """Dreamt worlds are dealt out anew: the same room and request, things in other places."""
    curriculum: bool = True
    """Tasks of high reward variance are varied into new ones."""


NAIVE = Levers(
    free_negatives=False,
    agent_logs=False,
    ledger=False,
    verifier=False,
    probe=False,
    reasoning=True,
    history=True,
    replay=True,
    worlds=False,
    curriculum=False,
)


class ModelConfig(_Config, frozen=True, kw_only=True):
    """A small Llama from scratch, or a pretrained model by name."""

    pretrained: str = ""
    """Empty: from scratch. `smollm2`, a Hugging Face folder or a hub name otherwise."""
    hidden: int = 128
    layers: int = 3
    heads: int = 2
    kv_heads: int = 2
    intermediate: int = 384
    vocab_size: int = 2048
    trainable: Literal["full", "lora", "top_k_layers"] = "full"
    top_k_layers: int = 8
    max_context: int = 1024
    learning_rate: float = 2e-3
    """Peak learning rate of supervised training."""
    optimizer: Literal["adamw", "muon"] = "muon"
    """Of supervised training; see `RLConfig` for the other."""
    from_experience: bool = False
    """For the agent: start from the fitted experience model's weights, which can already look
    things up and copy them, instead of from scratch."""
    batch_tokens: int = 4096
    """Tokens per micro-batch."""


class LogConfig(_Config, frozen=True, kw_only=True):
    """Which episodes are logged in training rooms; every transition is counted."""

    tasks: int = 200
    """Training games logged."""
    survey: int = 1
    """Episodes per game of the policy that looks into every place once, then does the task."""
    noisy: int = 1
    """Episodes per game of an expert that takes a random action 30 % of the time."""
    random_share: float = 0.3
    """Share of the games that also get one random episode."""
    demonstrations: int = 100
    """Demonstrations that the experience model learns from, too."""
    agent_episodes: int = 100
    """Episodes of the warm-started agent."""
    heldout_share: float = 0.12
    """Share of logged games kept out of fitting, to measure the experience model on."""


class CloneConfig(_Config, frozen=True, kw_only=True):
    """Behaviour cloning of the warm start."""

    episodes: int = 900
    """Demonstrations: episodes of the searcher, which knows nothing hidden."""
    max_steps: int = 30
    """Step limit of demonstrations: a demonstrator that dawdles needs longer."""
    steps: int = 1000
    batch_tokens: int = 2048
    """Tokens per optimiser step."""
    learning_rate: float = 2e-3
    dawdles: float = 0.5
    """Probability that the demonstrator looks at what it knows already: harmless, but it costs a
    turn.  It is imitated, as users' logs are; that it costs tasks is for RL to find out."""
    slips: float = 0.1
    """Probability that the demonstrator does something else than it meant to; not imitated, but
    what it does next is."""
    renumber: float = 0.8
    """Probability of renaming entity numbers in a demonstration."""
    rename: float = 0.3
    """Probability of exchanging the names of its things."""


class RLConfig(_Config, frozen=True, kw_only=True):
    """Policy optimisation, the same in the dream and in reality."""

    learning_rate: float = 3e-4
    optimizer: Literal["adamw", "muon"] = "muon"
    """Muon moves a small model in tens of updates where AdamW needs hundreds."""
    temperature: float = 1.0
    max_new_tokens: int = 32


class S2RConfig(_Config, frozen=True, kw_only=True):
    """The short real phase, and the baseline that gets only this phase."""

    budget: int = 4000
    """Real transitions, for S2R and for the real-only baseline alike."""
    loop: LoopConfig = LoopConfig(
        iterations=1000, tasks_per_iteration=16, group_size=8, max_idle=3, checkpoint_every=1
    )
    """Checkpoints after every iteration: no real transition is spent twice."""


class EvaluationConfig(_Config, frozen=True, kw_only=True):
    """Evaluation in rooms never seen."""

    tasks: int = 240
    split: str = "valid_unseen"


class NaiveConfig(_Config, frozen=True, kw_only=True):
    """The ungrounded run shown beside the grounded one."""

    iterations: int = 15
    fit_steps: int = 200
    evaluate_every: int = 6
    evaluate_tasks: int = 100


class DemoConfig(_Config, frozen=True, kw_only=True):
    """The resolved configuration of one demo run."""

    preset: str = "tiny"
    seed: int = 0
    algorithm: str = "grpo"
    size: str = "tiny"
    """Room size of the household suite."""
    max_steps: int = 15
    levers: Levers = Levers()
    logs: LogConfig = LogConfig()
    agent: ModelConfig = ModelConfig(from_experience=True)
    experience: ModelConfig = ModelConfig()
    clone: CloneConfig = CloneConfig()
    annotate: AnnotateConfig = AnnotateConfig(negatives=2, neighbours=1, history=1)
    ask: ExperienceConfig = ExperienceConfig(
        prompt=PromptConfig(
            style="compact",
            scenario="relevant",
            past="actions",
            neighbours=1,
            history=1,
        ),
        max_tokens=96,
        retries=3,
    )
    fit: FitConfig = FitConfig(
        steps=600,
        mixture=ExampleConfig(
            negative_share=0.4,
            success_share=0.1,
            long_share=0.35,
            kind_weights={
                **{"take/none": 5.0, "move/none": 5.0, "go/none": 3.0, "open/none": 2.0},
                **{"heat/none": 2.5, "cool/none": 2.5, "clean/none": 2.5},
            },
        ),
    )
    refit_steps: int = 120
    """Further steps after the agent's own logs came in."""
    accuracy_examples: int = 1500
    """Held-out examples the experience model is measured on."""
    buffer_capacity: int = 20000
    """Transitions the replay buffer holds."""
    grpo: dict[str, float | int | str] = msgspec.field(
        default_factory=lambda: {"aggregate": "sequence_mean", "minibatches": 4}
    )
    """Options of GRPO beyond the group size."""
    rl: RLConfig = RLConfig()
    dream: DreamConfig = DreamConfig(max_steps=15)
    dream_loop: LoopConfig = LoopConfig(
        iterations=25, tasks_per_iteration=16, group_size=8, max_idle=3
    )
    curriculum: CurriculumSettings = CurriculumSettings()
    """How tasks are weighted and varied; its switch is `levers.curriculum`."""
    world_share: float = 0.8
    """Share of dreamt tasks whose world is dealt out anew; its switch is `levers.worlds`."""
    probe: ProbeConfig = ProbeConfig(every=20, refresh_steps=30)
    s2r: S2RConfig = S2RConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    naive: NaiveConfig | None = NaiveConfig()
    """None leaves the naive run out."""
    is_naive: bool = False
    """Run only the naive part (`dreamgym demo --naive`)."""


PRESETS: dict[str, DemoConfig] = {"tiny": DemoConfig()}


def preset(name: str) -> DemoConfig:
    """Return a preset by name; unknown names raise `ConfigError` with the nearest one."""
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    return PRESETS[name]

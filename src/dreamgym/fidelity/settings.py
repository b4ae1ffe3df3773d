"""What `dreamgym fidelity` measures, and on how much."""

from __future__ import annotations

from dreamgym.dream.experience import ExperienceConfig
from dreamgym.dream.prompt import PromptConfig
from dreamgym.errors import ConfigError, unknown_name
from dreamgym.fidelity.subject import ABLATIONS
from dreamgym.llm.connect import EndpointSettings
from dreamgym.pipeline.settings import PlaySettings, Settings, SuiteSettings


class FidelitySettings(Settings, frozen=True, kw_only=True):
    """What to measure: a run, or a model folder; and the held-out panel."""

    run: str = ""
    """A run of `dreamgym demo`, or a dream folder of `dreamgym fit`."""
    model: str = ""
    """Experience model: of a run its name under `models/`; without a run a model folder."""
    endpoint: EndpointSettings = EndpointSettings()
    """An experience model behind an endpoint, instead of a run or a model folder."""
    episodes: tuple[str, ...] = ()
    """Record files of held-out real episodes; empty: they are played on the spot, and counted."""
    suite: SuiteSettings = SuiteSettings()
    """The real suite; of a demo run the run's own options."""
    split: str = "valid_unseen"
    tasks: int = 80
    """Held-out tasks played."""
    policies: tuple[str, ...] = ()
    """Policies for the panel and the rank agreement: names of the suite with options
    (`noisy:p=0.3`) or model folders; empty: the suite's usual ones and the run's agents."""
    greedy: bool = True
    """Trained agents play greedily; sampled at a high temperature a weak agent hardly ever succeeds
    anywhere, and nothing can be compared."""
    out: str = ""
    """Where the files go; empty: `fidelity/` in the run."""
    seed: int = 0
    max_steps: int = 25
    """Step limit of episodes; of a demo run the run's own."""
    questions: int = 2500
    """Logged steps the model is asked (negatives come on top)."""
    negatives: int = 1
    """Impossible actions asked beside each logged step."""
    rare_share: float = 0.02
    """An action kind with less than this share of the logged steps is rare."""
    drift_episodes: int = 150
    """Real episodes walked again in the dream."""
    free_tasks: int = 80
    """Tasks every policy plays in the dream, to be replayed for real."""
    ablate: tuple[str, ...] = tuple(ABLATIONS)
    """Parts switched off in turn."""
    ablation_questions: int = 400
    ablation_tasks: int = 30
    """Logged steps and dreamt tasks per ablation, and of the whole model beside them."""
    copies: int = 16
    """Copies of one group that replay the same actions; their rewards must not differ."""
    real_step_seconds: float | None = None
    """Seconds of a real step where it is not the suite here that one wants to be compared with."""
    ask: ExperienceConfig = ExperienceConfig(
        prompt=PromptConfig(
            style="compact", scenario="relevant", past="actions", neighbours=1, history=1
        ),
        max_tokens=96,
    )
    """How a bare model folder or an endpoint is asked; a run knows it itself."""
    play: PlaySettings = PlaySettings()

    def __post_init__(self) -> None:
        """Refuse panels that hold nothing, and parts that do not exist."""
        for name in ("tasks", "questions", "drift_episodes", "free_tasks", "max_steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1; got {getattr(self, name)}")
        for name in ("ablation_questions", "ablation_tasks"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1; got {getattr(self, name)}")
        if self.negatives < 0:
            raise ConfigError(f"negatives must not be negative; got {self.negatives}")
        if self.copies < 2:
            raise ConfigError(f"copies must be at least 2 to be compared; got {self.copies}")
        if not 0 <= self.rare_share <= 1:
            raise ConfigError(f"rare_share must be in [0, 1]; got {self.rare_share}")
        if self.real_step_seconds is not None and self.real_step_seconds <= 0:
            raise ConfigError(f"real_step_seconds must be above 0; got {self.real_step_seconds}")
        if self.endpoint.url and (self.run or self.model):
            raise ConfigError(
                "measure a run, a model folder or an endpoint; more than one of them is given"
            )
        for part in self.ablate:
            if part not in ABLATIONS:
                raise unknown_name("ablation", part, ABLATIONS)

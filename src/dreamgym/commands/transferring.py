"""Settings of `dreamgym transfer`, and the pieces put together."""

from __future__ import annotations

from dreamgym.pipeline.models import save_trained
from dreamgym.pipeline.settings import PlaySettings, Settings, SuiteSettings
from dreamgym.pipeline.subscribers import Recorder
from dreamgym.pipeline.suites import open_suite, refuse_evaluation_split
from dreamgym.pipeline.training import Trainee, UpdateSettings, check_update
from dreamgym.progress import progress
from dreamgym.runs import RunFolder
from dreamgym.transfer import TransferConfig, TransferReport, transfer


class TransferSettings(Settings, frozen=True, kw_only=True):
    """What to transfer where."""

    policy: str = ""
    """A model folder, or a run folder with a `model/`."""
    suite: SuiteSettings = SuiteSettings()
    split: str = "train"
    tasks: int = 200
    out: str = "runs/s2r"
    seed: int = 0
    update: UpdateSettings = UpdateSettings()
    play: PlaySettings = PlaySettings()
    transfer: TransferConfig = TransferConfig()

    def __post_init__(self) -> None:
        """Refuse an algorithm that cannot be built."""
        check_update(self.update, self.transfer.loop)


def transfer_policy(settings: TransferSettings, run: RunFolder) -> TransferReport:
    """Go on for real until the budget is used up, and save the model."""
    refuse_evaluation_split(settings.split, allow=False, purpose="training")
    suite, tasks = open_suite(settings.suite, settings.split, settings.tasks)
    trainee = Trainee(settings.policy, settings.update, settings.play, settings.transfer.loop)
    with progress("real training", settings.transfer.budget) as bar:
        report = transfer(
            suite,
            tasks,
            trainee.agent.policy,
            trainee.learner,
            algorithm=trainee.algorithm,
            config=settings.transfer,
            seed=settings.seed,
            run=run,
            publish=trainee.agent.publish,
            subscribers=[Recorder(run, "transfer")],
            on_progress=lambda step, metrics: bar.advance(
                int(metrics["rollout/transitions"]), f"success {metrics['rollout/success']:.2f}"
            ),
        )
    save_trained(trainee.learner, run.path / "model")
    return report

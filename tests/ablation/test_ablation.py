"""Ablations from the command line: what is run, what is kept, and what is made of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from rich.cells import cell_len

from spyrl.ablation import running as ablating
from spyrl.ablation.results import Results, collect
from spyrl.ablation.running import open_ablation, planned, run_all
from spyrl.ablation.tables import notes
from spyrl.ablation.variants import VARIANTS, Variant, chosen
from spyrl.cli import main
from spyrl.config import load_config
from spyrl.errors import UsageError
from spyrl.ledger.blank import blank_model, blank_tokenizer
from spyrl.settings import plain, read_overrides

SMALL = ("training.iterations=2", "training.games=4", "training.evaluation.every=1")
FOLDER = Path("ablations/ledger")


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, 80 columns wide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(ablating.time, "sleep", lambda seconds: None)
    return tmp_path


def write_run(folder: Path, start: float, ends: Sequence[float], *, config: Any = None, whole: bool = True) -> None:
    """A run's folder, measured at every iteration."""
    (folder / "checkpoints" / "iteration-00001").mkdir(parents=True, exist_ok=True)
    (folder / "checkpoints" / "iteration-00001" / "state.json").write_text('{"sizes": {}}')
    lines: list[dict[str, Any]] = [
        {
            "iteration": number,
            "quality/greedy": end,
            "quality/sampled": end - 0.1,
            "frozen/detection": 0.5 + end / 10,
            "detection/accuracy": 0.25,
            "seconds/total": 1.5,
        }
        for number, end in enumerate(ends)
    ]
    lines[0] |= {"start/quality/greedy": start, "start/quality/sampled": start, "start/frozen/detection": 0.5}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if config is not None:
        (folder / "config.yaml").write_text(yaml.safe_dump({"preset": "ledger", **plain(config)}))
    if whole:
        (folder / "model").mkdir()


@dataclass
class Ended:
    """A process that is over, or that waits for its end."""

    code: int | None
    asked: list[str] = field(default_factory=list)

    def poll(self) -> int | None:
        return self.code

    def wait(self) -> int:
        return self.code or 0

    def terminate(self) -> None:
        self.asked.append("terminate")

    def kill(self) -> None:
        self.asked.append("kill")


@dataclass
class Trainings:
    """Instead of `spyrl train`: every run ends at once and above its start, unless ``act`` knows better."""

    commands: list[list[str]] = field(default_factory=list)
    act: dict[str, Callable[[Path, Path], Ended]] = field(default_factory=dict)
    processes: list[Ended] = field(default_factory=list)

    def start(self, command: Sequence[str], log: Path) -> Ended:
        self.commands.append(list(command))
        words = [word for word in command if "=" in word]
        run = read_overrides(words)["run"]
        folder = Path(run["folder"]) / run["name"]
        if run["name"] in self.act:
            process = self.act[run["name"]](folder, log)
        else:
            config = None if "--resume" in command else load_config("ledger", words)
            iterations = config.training.iterations if config else 2
            write_run(folder, 0.5, [0.6 + len(self.commands) / 300] * iterations, config=config)
            process = Ended(0)
        self.processes.append(process)
        return process

    @property
    def names(self) -> list[str]:
        return [read_overrides([word for word in line if "=" in word])["run"]["name"] for line in self.commands]


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> Trainings:
    found = Trainings()
    monkeypatch.setattr(ablating, "start", found.start)
    return found


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


@pytest.fixture
def ablate(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def run(*words: str) -> Said:
        capsys.readouterr()
        code = main(["ablate", *words])
        return Said(code, *capsys.readouterr())

    return run


Ablate = Callable[..., Said]


# What is run


def test_runs_go_seed_by_seed_each_with_its_own_settings(trainings: Trainings, ablate: Ablate) -> None:
    said = ablate("ledger", *SMALL, "--seeds", "2", "--only", "joint,full", "--jobs", "1")
    assert (said.code, said.err) == (0, "")
    assert trainings.names == ["full-0", "joint-0", "full-1", "joint-1"]
    command = trainings.commands[3]
    assert command[1:5] == ["-m", "spyrl", "train", "ledger"]
    assert command[5:] == [
        *SMALL,
        "training.stages=joint",
        "training.optimizer=shared",
        "model.path=bundled:ledger-1",
        "run.seed=1",
        "run.name=joint-1",
        f"run.folder={FOLDER / 'runs'}",
    ]
    saved = yaml.safe_load((FOLDER / "ablation.yaml").read_text())
    assert (saved["preset"], saved["words"]) == ("ledger", list(SMALL))
    assert {path.name for path in FOLDER.iterdir()} - {".lock"} == {
        "ablation.yaml",
        "curves.png",
        "logs",
        "results.json",
        "results.md",
        "runs",
    }


def test_what_is_printed_fits_80_columns(trainings: Trainings, ablate: Ablate) -> None:
    said = ablate(*SMALL, "--seeds", "2", "--jobs", "3")
    assert said.code == 0
    assert all(cell_len(line) <= 80 for line in said.out.splitlines())
    assert "shared-optimizer\n+no-role-baselines" in "\n".join(line.split("  ")[0] for line in said.out.splitlines())
    assert "Table 16" in said.out
    assert "Seeds take turns with 3 starting models" in said.out
    distinct = len(VARIANTS) - 2  # two share the runs of others
    assert len(trainings.commands) == 2 * distinct
    results = json.loads((FOLDER / "results.json").read_text())
    assert [each["variant"]["name"] for each in results["variants"]] == [variant.name for variant in VARIANTS]
    page = (FOLDER / "results.md").read_text()
    assert "| shared-optimizer+no-role-baselines | 2 | 0.500 |" in page
    assert "hidden-60 has the configuration, and so the runs, of mask-60." in page


def test_seeds_take_turns_with_the_warm_starts_unless_a_path_is_given() -> None:
    recipe = Path("recipe.yaml")
    recipe.write_text("task: ledger\nmodel: {path: 'bundled:ledger-0'}\ntraining: {evaluation: {every: 5}}\n")
    runs = planned(open_ablation(str(recipe), []), chosen("full"), 4)
    assert [run.config.model.path for run in runs] == [f"bundled:ledger-{number}" for number in (0, 1, 2, 0)]
    assert "model.path=bundled:ledger-2" in runs[2].words
    runs = planned(open_ablation(str(recipe), ["model.path=bundled:ledger-1"], "other"), chosen("full"), 2)
    assert [run.config.model.path for run in runs] == ["bundled:ledger-1", "bundled:ledger-1"]
    runs = planned(open_ablation(str(recipe), ["model.path=mine"], "other"), chosen("full"), 2)
    assert [run.config.model.path for run in runs] == ["mine", "mine"]


def test_a_run_is_the_configuration_that_its_words_make() -> None:
    ablation = open_ablation("ledger", SMALL)
    for run in planned(ablation, chosen("full,large-steps,players-3"), 2):
        assert load_config("ledger", run.words) == run.config


def test_the_list_of_variants(ablate: Ablate) -> None:
    said = ablate("--list")
    assert (said.code, said.err) == (0, "")
    assert all(cell_len(line) <= 80 for line in said.out.splitlines())
    assert all(f"{variant.name}: {variant.what}" in " ".join(said.out.split()) for variant in VARIANTS)
    assert "training.stages=joint training.optimizer=shared" in said.out
    assert not Path("ablations").exists()


# What is kept


def test_finished_runs_are_kept_and_more_can_be_added(trainings: Trainings, ablate: Ablate) -> None:
    ablate(*SMALL, "--seeds", "1", "--only", "full", "--jobs", "2")
    said = ablate(*SMALL, "--seeds", "2", "--only", "full,joint", "--jobs", "2")
    assert said.code == 0
    assert "1 of 4 runs are finished already" in said.out
    assert trainings.names == ["full-0", "joint-0", "full-1", "joint-1"]


def test_an_interrupted_ablation_goes_on_with_the_same_command(trainings: Trainings, ablate: Ablate) -> None:
    def interrupted(folder: Path, log: Path) -> Ended:
        raise KeyboardInterrupt

    def under_way(folder: Path, log: Path) -> Ended:
        write_run(folder, 0.5, [0.6], whole=False)
        (folder / "config.yaml").write_text(yaml.safe_dump({"preset": "ledger", **plain(configs["no-gate-0"])}))
        return Ended(None)

    configs = {run.name: run.config for run in planned(open_ablation("ledger", SMALL), chosen("no-gate"), 1)}
    trainings.act = {"no-gate-0": under_way, "joint-0": interrupted}
    words = (*SMALL, "--seeds", "1", "--only", "full,no-gate,joint", "--jobs", "2")
    said = ablate(*words)
    assert said.code == 130
    assert "The same command goes on" in said.out
    assert [process.asked for process in trainings.processes] == [[], ["terminate"]]
    (FOLDER / "runs" / "joint-0").mkdir()  # killed before its first checkpoint
    (FOLDER / "runs" / "joint-0" / "stale").touch()

    trainings.act, trainings.commands = {}, []
    said = ablate(*words)
    assert said.code == 0
    assert trainings.names == ["no-gate-0", "joint-0"]
    first, second = trainings.commands
    assert first[3:] == ["train", "--resume", "run.name=no-gate-0", f"run.folder={FOLDER / 'runs'}"]
    assert second[3:5] == ["train", "ledger"]
    assert not (FOLDER / "runs" / "joint-0" / "stale").exists()


def test_a_second_interrupt_ends_the_runs_at_once(trainings: Trainings) -> None:
    class Stubborn(Ended):
        def wait(self) -> int:
            if "kill" not in self.asked:
                raise KeyboardInterrupt
            return -9

    def interrupted(folder: Path, log: Path) -> Ended:
        raise KeyboardInterrupt

    trainings.act = {"full-0": lambda folder, log: Stubborn(None), "joint-0": interrupted}
    ablation = open_ablation("ledger", SMALL)
    said: list[str] = []
    ended = run_all(ablation, planned(ablation, chosen("full,joint"), 1), 2, said.append)
    assert ended.interrupted
    assert trainings.processes[0].asked == ["terminate", "kill"]
    assert said == ["stopping the runs after their iteration, with checkpoints; once more to stop at once"]


def test_a_failed_run_is_reported_and_left_out(trainings: Trainings, ablate: Ablate) -> None:
    def fails(folder: Path, log: Path) -> Ended:
        log.write_text("loading\nspyrl: the disk is full\n\n")
        write_run(folder, 0.5, [0.6], whole=False)
        return Ended(1)

    trainings.act = {"joint-0": fails}
    words = (*SMALL, "--seeds", "2", "--only", "full,joint", "--jobs", "1")
    said = ablate(*words)
    assert said.code == 1
    assert trainings.names == ["full-0", "joint-0", "full-1", "joint-1"]  # the rest goes on
    assert "joint-0 failed: spyrl: the disk is full" in said.out
    results = json.loads((FOLDER / "results.json").read_text())
    assert results["failed"] == {"joint-0": "spyrl: the disk is full"}
    assert [len(each["seeds"]) for each in results["variants"]] == [2, 1]
    assert "Left out: joint-0 failed (spyrl: the disk is full)." in (FOLDER / "results.md").read_text()


def test_only_failed_runs(trainings: Trainings, ablate: Ablate) -> None:
    trainings.act = {"full-0": lambda folder, log: Ended(2)}
    said = ablate(*SMALL, "--seeds", "1", "--only", "full", "--jobs", "1")
    assert said.code == 1
    assert "full-0 failed: it ended with exit code 2" in said.out
    assert "no run is finished" in said.out


# What is refused


def test_another_ablation_in_the_folder(trainings: Trainings, ablate: Ablate) -> None:
    ablate(*SMALL, "--seeds", "1", "--only", "full", "--jobs", "1")
    said = ablate(*SMALL, "training.games=5", "--seeds", "1", "--only", "full")
    assert (said.code, said.out) == (2, "")
    assert "ablations/ledger holds another ablation, spyrl ablate ledger training.iterations=2" in said.err
    assert "(training.games was 4 and is 5)" in said.err
    recipe = Path("ledger.yaml")
    recipe.write_text("task: ledger\n")
    assert "holds another ablation" in ablate("ledger.yaml", *SMALL).err
    assert len(trainings.commands) == 1
    assert ablate(*reversed(SMALL), "--seeds", "1", "--only", "full").code == 0  # the order says nothing


def test_a_run_with_other_settings(trainings: Trainings, ablate: Ablate) -> None:
    words = (*SMALL, "--seeds", "1", "--only", "full")
    ablate(*words)
    path = FOLDER / "runs" / "full-0" / "config.yaml"
    path.write_text(path.read_text().replace("players: 5", "players: 6"))
    said = ablate(*words)
    assert said.code == 2
    assert "full-0 was run with game.players=6, and full has 5; remove it" in said.err


def test_a_folder_of_something_else(workplace: Path) -> None:
    (workplace / "thesis").mkdir()
    (workplace / "thesis" / "chapter.txt").touch()
    with pytest.raises(UsageError, match="thesis is no ablation's folder"):
        open_ablation("ledger", SMALL, "thesis")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["training.evaluation.every=0"], "training.evaluation.every is 0; set it"),
        (["writing-smollm2"], "training.evaluation.every is 0; set it"),
        (["run.seed=3"], "run.seed is set by the ablation itself"),
        (["run.folder=here"], "run.folder is set by the ablation itself"),
        (["training.stages=joint"], "training.stages=joint makes one step for both stages"),
        (["model.detector.path=other"], "model.detector is fixed"),
        (["training.stages=detection", "model.performer.path=other"], "variant joint: settings: model.performer is"),
        (["--only", "ful"], "there is no variant 'ful'; did you mean 'full'?"),
        (["--seeds", "0"], "--seeds and --jobs should be 1 or more"),
        (["--jobs", "-1"], "--seeds and --jobs should be 1 or more"),
        (["lodger"], "unknown preset 'lodger'"),
    ],
)
def test_bad_input_is_named_before_anything_runs(
    trainings: Trainings, ablate: Ablate, words: list[str], problem: str
) -> None:
    said = ablate(*words)
    assert (said.code, said.out) == (2, "")
    assert problem in said.err
    assert not trainings.commands
    assert not Path("ablations").exists()


# What is made of it


def collected(runs: dict[str, tuple[float, list[float]]], asked: Sequence[Variant] = ()) -> Results:
    """Results of hand-made runs: by name, the start and both measurements."""
    ablation = open_ablation("ledger", SMALL)
    for name, (start, ends) in runs.items():
        write_run(ablation.runs / name, start, ends)
    results = collect(ablation, asked)
    assert results is not None
    return results


def test_means_differences_and_agreement() -> None:
    results = collected(
        {
            "full-0": (0.5, [0.7, 0.8]),
            "full-1": (0.6, [0.7, 0.92]),
            "full-2": (0.5, [0.6, 0.83]),
            "no-role-baselines-0": (0.5, [0.4, 0.3]),
            "no-role-baselines-1": (0.6, [0.5, 0.39]),
            "no-role-baselines-2": (0.5, [0.5, 0.32]),
            "joint-0": (0.5, [0.6, 0.9]),
            "joint-1": (0.6, [0.6, 1.0]),
            "joint-7": (0.5, [0.5, 0.1]),
            "mask-20-0": (0.5, [0.5, 0.7]),
            "unheard-of-0": (0.5, [0.5, 0.7]),
        }
    )
    full, without, joint, mask = results.compared
    assert results.measure == "quality/greedy"
    assert [each.variant.name for each in results.compared] == ["full", "no-role-baselines", "joint", "mask-20"]

    assert full.end["quality/greedy"].mean == pytest.approx(0.85)
    assert full.start["quality/greedy"].mean == pytest.approx(1.6 / 3)
    assert full.change is not None
    assert full.change.difference.mean == pytest.approx((0.3 + 0.32 + 0.33) / 3)
    assert (full.ends, full.difference, full.as_full, full.as_start) == ("above", None, None, "yes")
    assert full.seeds[1].curve == [(0, 0.6), (1, 0.7), (2, 0.92)]
    assert full.seeds[1].seconds == 3.0

    assert without.difference is not None
    assert without.difference.difference.mean == pytest.approx(-(0.5 + 0.53 + 0.51) / 3)
    assert without.difference.p is not None
    assert without.difference.p < 0.001
    assert (without.ends, without.as_full, without.as_start) == ("below", "yes", "yes")

    assert joint.difference is not None
    assert joint.difference.difference.count == 2  # seeds 0 and 1; the full method has no seed 7
    assert joint.change is not None
    assert joint.change.difference.count == 3
    assert joint.ends == "undecided"
    assert joint.as_start == "undecided"

    assert mask.difference is not None
    assert (mask.difference.p, mask.ends, mask.as_full) == (None, "undecided", None)


def test_a_disagreement_with_the_paper_is_said() -> None:
    starts = {f"joint-{seed}": (0.5, [0.5, 0.9 + seed / 50]) for seed in range(3)}
    results = collected(starts | {f"full-{seed}": (0.5, [0.5, 0.6 + seed / 90]) for seed in range(3)})
    joint = results.compared[1]
    assert (joint.ends, joint.as_full, joint.as_start) == ("above", "no", "no")


def test_a_regime_is_compared_with_itself() -> None:
    results = collected(
        {
            "full-0": (0.5, [0.5, 0.9]),
            "large-steps-0": (0.5, [0.5, 0.8]),
            "large-steps+joint-0": (0.5, [0.5, 0.6]),
            "mask-60-0": (0.5, [0.5, 0.7]),
            "hidden-60+joint-0": (0.5, [0.5, 0.4]),
        },
        chosen("hidden-60"),
    )
    found = {each.variant.name: each.difference for each in results.compared}
    differences = {name: round(each.difference.mean, 3) for name, each in found.items() if each}
    assert differences == {
        "large-steps": -0.1,
        "large-steps+joint": -0.2,
        "mask-60": -0.2,
        "hidden-60": -0.2,
        "hidden-60+joint": -0.3,
    }


def test_unfinished_runs_are_left_out_with_a_note() -> None:
    ablation = open_ablation("ledger", SMALL)
    write_run(ablation.runs / "full-0", 0.5, [0.6, 0.7])
    write_run(ablation.runs / "full-1", 0.5, [0.6], whole=False)
    write_run(ablation.runs / "full-2", 0.5, [0.6, 0.8], whole=False)  # its model is not written yet
    results = collect(ablation)
    assert results is not None
    assert [seed.seed for seed in results.compared[0].seeds] == [0]
    assert results.unfinished == ("full-1", "full-2")
    assert "Left out as not finished: full-1, full-2." in notes(results, {})


def test_without_known_quality_detection_is_compared() -> None:
    ablation = open_ablation("ledger", SMALL)
    for seed, end in enumerate((0.7, 0.8)):
        folder = ablation.runs / f"full-{seed}"
        write_run(folder, 0.5, [0.6, end])
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        kept = [{key: value for key, value in line.items() if "quality" not in key} for line in lines]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    results = collect(ablation)
    assert results is not None
    assert results.measure == "frozen/detection"
    assert results.compared[0].start["frozen/detection"].mean == 0.5
    assert results.compared[0].end["frozen/detection"].mean == pytest.approx(0.575)


# For real


def test_a_small_ablation_in_processes_of_its_own(tmp_path: Path, ablate: Ablate, monkeypatch: Any) -> None:
    monkeypatch.undo()  # real waiting
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    tokenizer = blank_tokenizer()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        blank_model(tokenizer).save_pretrained("blank")
    tokenizer.save_pretrained("blank")
    small = ("model.path=blank", *SMALL, "game.max_tokens=6", "training.evaluation.documents=4")
    words = (*small, "--seeds", "2", "--only", "full,performing-only", "--jobs", "2")
    said = ablate(*words)
    assert (said.code, said.err) == (0, "")
    assert "4 of 4" in said.out
    results = json.loads((FOLDER / "results.json").read_text())
    assert [each["variant"]["name"] for each in results["variants"]] == ["full", "performing-only"]
    for each in results["variants"]:
        assert [seed["seed"] for seed in each["seeds"]] == [0, 1]
        assert all([done for done, _ in seed["curve"]] == [0, 1, 2] for seed in each["seeds"])
        assert {"quality/greedy", "quality/sampled", "frozen/detection"} <= each["end"].keys()
    before = (FOLDER / "runs" / "full-1" / "metrics.jsonl").read_bytes()
    again = ablate(*words)
    assert again.code == 0
    assert "4 of 4 runs are finished already" in again.out
    assert (FOLDER / "runs" / "full-1" / "metrics.jsonl").read_bytes() == before

"""Seeds x variants training runs in one folder: plan them, run what is missing, keep what is there.

Each run is a training of its own, in a process of its own, and goes on where it was when it was interrupted:

``ablation.yaml`` (what is ablated), ``runs/VARIANT-SEED/`` (`spyrl.runs.folder`), ``logs/VARIANT-SEED.txt``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import yaml

from spyrl.ablation.variants import FULL, VARIANTS, Variant, words_of
from spyrl.config import LEDGER_MODELS, Config, config_of, load_config
from spyrl.errors import SpyRLError, UsageError
from spyrl.runs.checkpoints import newest_checkpoint
from spyrl.runs.folder import RunFolder, write_atomically
from spyrl.settings import plain, read_overrides, read_yaml

WARM_STARTS = 3
"""Starting models that come with the package, ``bundled:ledger-0`` and so on; seeds take turns with them."""

_OWN = ("run.seed", "run.name", "run.folder")


@dataclass(frozen=True)
class Ablation:
    """What is ablated, and where its runs are."""

    folder: Path
    preset: str
    words: tuple[str, ...]
    configs: Mapping[str, Config]
    """Every variant's configuration, before its seed."""

    @property
    def runs(self) -> Path:
        """The folder of all runs."""
        return self.folder / "runs"

    @property
    def takes_turns(self) -> bool:
        """Whether seeds take turns with the starting models: not where the words name one of them, or another."""
        named = "path" in (read_overrides(self.words).get("model") or {})
        return self.configs[FULL].model.path.startswith(LEDGER_MODELS) and not named

    def shared(self, variant: Variant) -> str:
        """The first variant with the same configuration, whose runs are this one's, too: mostly its own name."""
        return next(name for name, config in self.configs.items() if config == self.configs[variant.name])


@dataclass(frozen=True)
class Run:
    """One training of the ablation."""

    variant: str
    seed: int
    folder: RunFolder
    log: Path
    config: Config
    words: tuple[str, ...]
    """Its settings on the command line, after the preset."""

    @property
    def name(self) -> str:
        """Its folder's name."""
        return self.folder.path.name

    @property
    def finished(self) -> bool:
        """Whether it has trained to its last iteration and left its model."""
        metrics = self.folder.read_metrics()
        last = metrics[-1]["iteration"] + 1 if metrics else 0
        return bool(last == self.config.training.iterations) and self.folder.model.is_dir()

    @property
    def resumable(self) -> bool:
        """Whether it can go on from a checkpoint."""
        return self.folder.config_path.is_file() and newest_checkpoint(self.folder.checkpoints) is not None


@dataclass(frozen=True)
class Ended:
    """How `run_all` ended: the runs that failed, each with the last line it said, and whether it was interrupted."""

    failures: Mapping[str, str]
    interrupted: bool


class Process(Protocol):
    """A training under way, as `subprocess.Popen` has it."""

    def poll(self) -> int | None:
        """Its exit code, once it has ended."""
        ...

    def wait(self) -> int:
        """Wait for its end."""
        ...

    def terminate(self) -> None:
        """Ask it to stop."""
        ...

    def kill(self) -> None:
        """Stop it."""
        ...


def open_ablation(preset: str, words: Sequence[str], folder: str | None = None) -> Ablation:
    """Check every variant's configuration over ``preset`` and ``words``, and the folder; nothing is written.

    Raises `UsageError` for settings that a variant cannot have, for a preset without measurements, and for a folder
    that holds another ablation.
    """
    overrides = read_overrides(words)
    for key in _OWN:
        if key.removeprefix("run.") in (overrides.get("run") or {}):
            raise UsageError(f"{key} is set by the ablation itself; leave it out (--seeds and --folder set its runs)")
    base = load_config(preset, words)
    if not base.training.evaluation.every:
        raise UsageError(
            "an ablation compares measurements on held-out documents, and training.evaluation.every is 0; "
            "set it, for example training.evaluation.every=10"
        )
    path = Path(folder).expanduser() if folder else Path("ablations") / Path(preset).stem
    ablation = Ablation(path, preset, tuple(words), _configs(preset, words, base))
    _check_folder(ablation)
    return ablation


def planned(ablation: Ablation, variants: Sequence[Variant], seeds: int) -> list[Run]:
    """The runs of ``variants``: seed by seed, each seed's in the order given; what shares its runs comes once.

    Raises `UsageError` where a run is there with other settings.
    """
    names = list(dict.fromkeys(ablation.shared(variant) for variant in variants))
    for run in found_runs(ablation):
        _check_run(run)
    return [run_of(ablation, name, seed) for seed in range(seeds) for name in names]


def found_runs(ablation: Ablation) -> list[Run]:
    """The runs in the folder, finished or not: variant by variant, each one's seeds in order."""
    names = {path.name for path in ablation.runs.iterdir()} if ablation.runs.is_dir() else set()
    seeds: dict[str, list[int]] = {variant.name: [] for variant in VARIANTS}
    for name in names:
        variant, _, seed = name.rpartition("-")
        if variant in seeds and seed.isdecimal():
            seeds[variant].append(int(seed))
    return [run_of(ablation, variant, seed) for variant, found in seeds.items() for seed in sorted(found)]


def run_of(ablation: Ablation, variant: str, seed: int) -> Run:
    """The run of a variant, by its name, and a seed; it may not be there yet."""
    name = f"{variant}-{seed}"
    base, config = ablation.configs[FULL], ablation.configs[variant]
    words = [*ablation.words, *words_of(next(each for each in VARIANTS if each.name == variant), base)]
    if ablation.takes_turns:
        path = f"bundled:ledger-{seed % WARM_STARTS}"
        config = replace(config, model=replace(config.model, path=path))
        words.append(f"model.path={path}")
    config = replace(config, run=replace(config.run, seed=seed, name=name, folder=str(ablation.runs)))
    words += [f"run.seed={seed}", f"run.name={name}", f"run.folder={ablation.runs}"]
    log = ablation.folder / "logs" / f"{name}.txt"
    return Run(variant, seed, RunFolder(ablation.runs / name), log, config, tuple(words))


def run_all(
    ablation: Ablation,
    runs: Sequence[Run],
    jobs: int,
    say: Callable[[str], None] = lambda text: None,
    status: Callable[[str], None] = lambda text: None,
) -> Ended:
    """Run what is not finished, ``jobs`` at once; ``say`` hears of every run's end, ``status`` where all stands.

    An interrupt (SIGINT, SIGTERM) stops the runs after their iteration under way, with checkpoints; a second one at
    once. Raises `SpyRLError` where another process works in the folder.
    """
    ablation.runs.mkdir(parents=True, exist_ok=True)
    (ablation.folder / "logs").mkdir(exist_ok=True)
    with RunFolder(ablation.folder).locked(), _terminated():
        _write_settings(ablation)
        waiting = deque(run for run in runs if not run.finished)
        progress = _Progress(len(runs), len(runs) - len(waiting), sum(_iterations(run) for run in waiting))
        if progress.done:
            say(f"{progress.done} of {len(runs)} runs are finished already")
        running: list[tuple[Run, Process]] = []
        failures: dict[str, str] = {}
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    run = waiting.popleft()
                    try:
                        running.append((run, start(_command(ablation, run), run.log)))
                    except (SpyRLError, OSError) as error:
                        progress.end(run)
                        failures[run.name] = str(error)
                        say(f"{run.name} failed: {error} ({progress})")
                for run, process in [each for each in running if each[1].poll() is not None]:
                    running.remove((run, process))
                    progress.end(run)
                    if run.finished:  # whatever went wrong after that, its result is whole
                        say(f"{run.name} is finished ({progress})")
                    else:
                        failures[run.name] = _reason(process.poll(), run.log)
                        say(f"{run.name} failed: {failures[run.name]} ({run.log}; {progress})")
                status(f"{progress} · training {', '.join(run.name for run, _ in running)}")
                if running:
                    time.sleep(0.1)
        except KeyboardInterrupt:
            _stop([process for _, process in running], say)
            return Ended(failures, interrupted=True)
        except BaseException:  # as where the terminal is gone: no run is left behind
            for _, process in running:
                process.kill()
            raise
    return Ended(failures, interrupted=False)


def start(command: Sequence[str], log: Path) -> Process:
    """Start a training on one thread, what it says going to ``log``.

    In a session of its own: an interrupt from the keyboard would reach it twice otherwise, and the second one counts.
    """
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    with log.open("w", encoding="utf-8") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


def cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass
class _Progress:
    total: int
    done: int
    iterations: int

    def __post_init__(self) -> None:
        self.begun, self.trained = time.monotonic(), 0

    def end(self, run: Run) -> None:
        self.done += 1
        self.trained += _iterations(run)

    def __str__(self) -> str:
        text = f"{self.done} of {self.total}"
        if not self.trained or self.done == self.total:
            return text
        left = (time.monotonic() - self.begun) * (self.iterations - self.trained) / self.trained
        return f"{text}, about {max(round(left / 60), 1)} min left"


def _iterations(run: Run) -> int:
    return run.config.training.iterations


def _configs(preset: str, words: Sequence[str], base: Config) -> dict[str, Config]:
    found = {}
    for variant in VARIANTS:
        try:
            found[variant.name] = load_config(preset, [*words, *words_of(variant, base)])
        except UsageError as error:
            raise UsageError(f"variant {variant.name}: {error}") from None
    return found


def _check_folder(ablation: Ablation) -> None:
    """Raise `UsageError` where the folder holds an ablation of something else, or no ablation at all."""
    path = ablation.folder / "ablation.yaml"
    if not path.exists():
        if ablation.folder.is_dir() and any(ablation.folder.iterdir()):
            raise UsageError(f"{ablation.folder} is no ablation's folder; choose another one with --folder")
        return
    saved = read_yaml(path)
    begun = " ".join(["spyrl ablate", str(saved.get("preset")), *map(str, saved.get("words") or ())])
    other = f"{ablation.folder} holds another ablation, {begun}; repeat its preset and settings, or choose a --folder"
    if saved.get("preset") != ablation.preset:
        raise UsageError(other)
    before = plain(config_of(saved.get("settings") or {}, str(path)))
    for key, was, wanted in _differences(before, plain(ablation.configs[FULL])):
        raise UsageError(f"{other} ({key} was {was!r} and is {wanted!r})")


def _check_run(run: Run) -> None:
    """Raise `UsageError` where the run is there with other settings, as after a change of the variant."""
    if not run.folder.config_path.is_file():
        return
    saved, _ = run.folder.read_config()
    before = plain(config_of(saved, str(run.folder.config_path)))
    for key, was, wanted in _differences(before, plain(run.config)):
        if key not in _OWN[1:]:  # the folder may have moved
            raise UsageError(
                f"{run.folder.path} was run with {key}={was!r}, and {run.variant} has {wanted!r}; remove it, or choose "
                "another --folder"
            )


def _write_settings(ablation: Ablation) -> None:
    data = {
        "preset": ablation.preset,
        "words": list(ablation.words),
        "settings": plain(ablation.configs[FULL]),
    }
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    write_atomically(ablation.folder / "ablation.yaml", text)


def _command(ablation: Ablation, run: Run) -> list[str]:
    """The command that begins the run or goes on with it. What was stopped before its first checkpoint begins anew."""
    train = [sys.executable, "-m", "spyrl", "train"]
    if run.resumable:
        return [*train, "--resume", f"run.name={run.name}", f"run.folder={ablation.runs}"]
    if run.folder.path.exists():
        with run.folder.locked():  # nobody else may be at it
            pass
        shutil.rmtree(run.folder.path)
    return [*train, ablation.preset, *run.words]


def _stop(processes: Sequence[Process], say: Callable[[str], None]) -> None:
    """Stop the runs after their iteration under way, or at once when interrupted again."""
    if processes:
        say("stopping the runs after their iteration, with checkpoints; once more to stop at once")
    try:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
    except KeyboardInterrupt:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


@contextmanager
def _terminated() -> Iterator[None]:
    """Take SIGTERM for an interrupt, so that no run is left behind."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not in the main thread: whoever runs us there handles signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _reason(code: int | None, log: Path) -> str:
    """Why a run failed: the last line that it said."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    said = next((line.strip() for line in reversed(lines) if line.strip()), "")
    if code == 0:
        return "it was stopped before its last iteration"
    if code is not None and code < 0:
        return f"it was killed by signal {-code}"
    return said or f"it ended with exit code {code}"


def _differences(before: Any, after: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Dotted keys whose values differ between two configurations, with both values."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in {**before, **after}:
            yield from _differences(before.get(name), after.get(name), f"{key}.{name}" if key else name)
    elif json.dumps(before) != json.dumps(after):
        yield key, before, after

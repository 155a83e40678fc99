"""A whole run: set up, iterate, keep checkpoints, leave a model."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from spyrl.config import Config
from spyrl.errors import SpyRLError, UsageError
from spyrl.game import named_seed
from spyrl.play import corpus_for, document_budget, hold_out
from spyrl.policy.hardware import hardware
from spyrl.policy.local import LocalPolicy
from spyrl.policy.models import LoadedModel, load_model, save_model
from spyrl.policy.opening import check_vllm, open_other, open_policy, start_vllm
from spyrl.policy.vllm import VllmPolicy
from spyrl.runs.checkpoints import load_weights, newest_checkpoint
from spyrl.runs.folder import RunFolder
from spyrl.runs.trackers import check_trackers, open_trackers
from spyrl.settings import plain
from spyrl.tasks import load_task
from spyrl.training.alarms import alarms
from spyrl.training.checkpoint import checkpoint_bytes, load_checkpoint, save_checkpoint
from spyrl.training.dividing import divided
from spyrl.training.iteration import Setup, Watcher, run_iteration
from spyrl.training.learner import make_learner
from spyrl.training.processes import check_device, count, from_main, is_main
from spyrl.training.sharding import is_sharded
from spyrl.training.silence import silence_warnings
from spyrl.training.state import State


@dataclass(frozen=True)
class Result:
    """How a run ended: after its last iteration with a model, or stopped on request with a checkpoint."""

    run: RunFolder
    state: State
    finished: bool


def prepare(config: Config, run: RunFolder, watcher: Watcher) -> Setup:
    """Load and check everything a run needs: model, task, corpus, disk.

    Raises `UsageError` or `SpyRLError` before any work is done.
    """
    if config.model.server:
        raise UsageError("model.server: a model behind a server cannot be trained here; give model.path a folder")
    check_trackers(config.run.log or [])
    task = load_task(config.task)
    check_device(config.model.device)
    opened = [open_other(other, config.model, watcher.say) for other in (config.model.performer, config.model.detector)]
    others = [divided(other) if other else None for other in opened]
    length = config.game.max_prompt_tokens + max(config.game.max_tokens, config.game.detectors.max_tokens)
    served = check_vllm(config.model, length) if config.model.engine == "vllm" else None
    loaded = _load(config, watcher.say)
    options: dict[str, Any] = {"template": dict(config.model.template or {}), "on_tokens": watcher.tokens}
    engine = None
    if config.model.engine == "vllm":
        engine = VllmPolicy(loaded, served or start_vllm(loaded, config.model, length), **options)
        own = divided(engine)
    else:
        own = divided(LocalPolicy(loaded, batch_tokens=config.model.batch_tokens, **options), loaded.model)
    learner = make_learner(loaded, config.training, config.game.temperature)
    performer, detector = (other or own for other in others)
    corpus = corpus_for(config, task, performer)
    room = from_main(run.free_bytes)
    need = checkpoint_bytes(learner) * (1 + (config.run.keep or 2)) + checkpoint_bytes(learner) // 3
    if room < need:
        raise SpyRLError(
            f"there are {room / 1e6:,.0f} MB free for {run.path}, and the run needs about {need / 1e6:,.0f} MB for its "
            "checkpoints and model; make room, set run.folder to another disk, or run.keep=1"
        )
    watcher.say(f"{corpus.description}; task {task.name}")
    held_out = None
    if config.training.evaluation.every:
        watcher.phase("measure")
        start = divided(open_policy(config.model))
        first, voter = (other or start for other in others)
        held_out = hold_out(config, task, first, voter, document_budget(task, first, config.game))
    return Setup(config, task, corpus, performer, detector, learner, run, watcher, held_out, engine)


def _load(config: Config, say: Callable[[str], None] = lambda text: None) -> LoadedModel:
    return load_model(config.model, trainable=True, seed=named_seed(config.run.seed, "adapters"), say=say)


def train(config: Config, run: RunFolder, watcher: Watcher, *, preset: str, resume: bool = False) -> Result:
    """Train to ``config.training.iterations`` and write the model; with ``resume`` from the newest checkpoint.

    An interrupt (SIGINT, SIGTERM) ends the run after the iteration under way, with a checkpoint; a second one at
    once. With many processes the first does that, too, since torchrun waits for none longer than half a minute; all
    of them call this, with the same arguments but for ``watcher``. Raises `SpyRLError` when an iteration has no
    playable game: that is an engine's or a setting's fault and would not mend itself.
    """
    setup = prepare(config, run, watcher)
    if not resume:
        from_main(lambda: _begin(setup, preset))
    with ExitStack() as held:
        from_main(lambda: held.enter_context(run.locked()))
        return _train(setup, preset, resume)


def _begin(setup: Setup, preset: str) -> None:
    """Make the run's folder."""
    setup.run.create()
    try:
        _write_config(setup, preset)
    except SpyRLError:
        setup.run.path.rmdir()  # so that the name is free again
        raise


def _write_config(setup: Setup, preset: str) -> None:
    found = hardware(setup.learner.loaded.device)
    if count() > 1:
        found |= {"processes": count()} | ({"gpus": count()} if "gpu" in found else {})
    setup.run.write_config(plain(setup.config), preset, found)


def _go_on(setup: Setup, preset: str, state: State) -> None:
    """Take back what was recorded after ``state``."""
    _write_config(setup, preset)
    setup.run.forget_from(state.iteration)


def _train(setup: Setup, preset: str, resume: bool) -> Result:
    config, run, watcher = setup.config, setup.run, setup.watcher
    from_main(lambda: run.checkpoints.mkdir(exist_ok=True))
    checkpoint = from_main(lambda: newest_checkpoint(run.checkpoints)) if resume else None
    state = load_checkpoint(checkpoint, setup.learner) if checkpoint else State()
    if resume:
        from_main(lambda: _go_on(setup, preset, state))
        watcher.say(f"going on from iteration {state.iteration}")
    settings = config.run
    with ExitStack() as stack:
        interrupted = stack.enter_context(_interrupts(watcher)) if count() == 1 else _Interrupted()
        trackers = open_trackers(settings.log or [], run, plain(config), state.iteration) if is_main() else []
        for tracker in trackers:
            stack.callback(tracker.close)
        first = from_main(lambda: next(iter(run.read_metrics()), None))
        warned: set[str] = set()
        while state.iteration < config.training.iterations:
            state, metrics = run_iteration(setup, state)
            watcher.iteration({"iteration": state.iteration - 1, **metrics})
            first = first or metrics
            for warning in (*silence_warnings(first, metrics, warned), *alarms(first, metrics, warned)):
                watcher.say(warning)
            for tracker in trackers:
                tracker.log(metrics, state.iteration - 1)
            last = state.iteration == config.training.iterations
            due = last or interrupted.stop or state.iteration % settings.checkpoint_every == 0
            if due:
                watcher.phase("checkpoint")
                save_checkpoint(run.checkpoints, setup.learner, state, settings.keep)
            if not metrics["games/played"]:
                raise SpyRLError(f"no game of iteration {state.iteration - 1} could be played (reasons above)")
            if interrupted.stop and due and not last:
                break
    finished = state.iteration >= config.training.iterations
    if finished:
        watcher.phase("model")
        from_main(lambda: save_model(_result(setup), run.model, merge=config.model.lora.merge))
    return Result(run, state, finished)


def _result(setup: Setup) -> LoadedModel:
    """The trained model; of a sharded one, which no process has, a copy with the last checkpoint's weights."""
    loaded, checkpoint = setup.learner.loaded, newest_checkpoint(setup.run.checkpoints)
    if not is_sharded(loaded.model) or checkpoint is None:
        return loaded
    dtype = str(loaded.dtype).removeprefix("torch.")
    config = replace(setup.config, model=replace(setup.config.model, device="cpu", dtype=dtype))  # type: ignore[arg-type]
    copy = _load(config)
    load_weights(checkpoint, copy.model)
    return copy


@dataclass
class _Interrupted:
    stop: bool = False
    previous: dict[int, Any] = field(default_factory=dict)


@contextmanager
def _interrupts(watcher: Watcher) -> Iterator[_Interrupted]:
    """Turn a first SIGINT or SIGTERM into a wish to stop; a second one interrupts at once."""
    state = _Interrupted()

    def on_signal(number: int, frame: Any) -> None:
        if state.stop:
            raise KeyboardInterrupt
        state.stop = True
        watcher.say("stopping after this iteration, with a checkpoint; once more to stop at once")

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            state.previous[int(number)] = signal.signal(number, on_signal)
    except ValueError:
        pass  # not in the main thread: whoever runs us there handles signals
    try:
        yield state
    finally:
        for code, handler in state.previous.items():
            signal.signal(code, handler)

"""What a person sees in the terminal: a run as it goes on, its summary, and a replayed game."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from spyrl.config import Config
from spyrl.figures import has_curve, plot, series
from spyrl.game import Ballot, Game
from spyrl.play import Settled
from spyrl.runs.folder import RunFolder

_PHASES = {
    "deal": "dealing",
    "perform": "performing",
    "detect": "detecting",
    "settle": "settling",
    "update": "learning",
    "measure": "measuring",
    "record": "recording",
    "checkpoint": "saving a checkpoint",
    "model": "writing the model",
}


class RunDisplay:
    """Watches a run: a live line below a log of one line an iteration; without a terminal, only the log.

    An iteration's line: how often detectors were right, abstained and were unreadable; the rewards; the output
    lengths of spy and civilians in tokens; KL; seconds. Where it was measured on held-out documents, a second line
    compares that with the start: ``first`` is the first line of metrics of a run that goes on.
    """

    def __init__(self, console: Console, config: Config, first: Mapping[str, Any] | None = None) -> None:
        self._console = console
        self._config = config
        self._done = 0
        self._seen = 0
        self._phase = "setting up"
        self._tokens = 0
        self._phase_begun = self._begun = time.monotonic()
        self._first = first
        self._status: list[str] = []
        self._quality = ""
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4, transient=True)

    def __enter__(self) -> RunDisplay:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def phase(self, name: str) -> None:
        """See `Watcher.phase`."""
        if name == "deal" and not self._seen:
            self._begun = time.monotonic()
        self._phase = _PHASES.get(name, name)
        self._tokens, self._phase_begun = 0, time.monotonic()

    def tokens(self, count: int) -> None:
        """See `Watcher.tokens`."""
        self._tokens += count

    def say(self, text: str) -> None:
        """See `Watcher.say`."""
        self._console.print(Text(text, style="dim"))

    def iteration(self, metrics: dict[str, Any]) -> None:
        """See `Watcher.iteration`."""
        self._done = metrics["iteration"] + 1
        if not self._seen:
            self._console.print(Text(_HEADER, style="bold"))
        self._seen += 1
        self._console.print(Text(iteration_line(metrics, self._config.training.iterations)))
        self._first = self._first or metrics
        measured = measured_line(self._first, metrics)
        if measured:
            self.say(measured)
        if metrics.get("quality/greedy") is not None:
            self._quality = _quality(metrics["quality/greedy"])
        stage = metrics["gate/next"] if self._config.training.stages == "alternate" else metrics["stage"]
        self._status = [f"training {stage}", f"spy found {_percent(metrics.get('detection/accuracy'))}"]
        self._status += [f"length {_lengths(metrics)}"]
        self._status += [f"quality {self._quality}"] if self._quality else []
        if metrics.get("gate/switched") and self._config.training.stages == "alternate":
            self.say(f"the gate turns to {metrics['gate/next']} ({metrics['gate/switched']})")

    def _render(self) -> Group:
        total = self._config.training.iterations
        games = self._done * self._config.training.games
        progress = Table.grid(padding=(0, 1))
        overall = [f"{self._done}/{total} iterations", f"{games} games played"]
        if self._seen:
            each = (time.monotonic() - self._begun) / self._seen
            overall.append(f"{_duration(each * (total - self._done))} left")
        progress.add_row(ProgressBar(total=total, completed=self._done, width=20), Text(" · ".join(overall)))
        now = [self._phase]
        spent = time.monotonic() - self._phase_begun
        if self._tokens and spent > 0:
            now.append(f"{self._tokens:,} tokens, {self._tokens / spent:.0f}/s")
        lines = [now, self._status] if self._status else [now]
        return Group(progress, *(Text(" · ".join(each), "dim", overflow="ellipsis", no_wrap=True) for each in lines))


_CONTROL = dict.fromkeys((*range(32), *range(127, 160)), "\ufffd") | {9: "\t", 10: "\n", 13: " "}
_HEADER = "  iter  stage       found  n/a   bad  spy     civ    length  kl      sec"


def iteration_line(metrics: dict[str, Any], total: int) -> str:
    """One line of at most 80 columns for an iteration."""
    seconds = metrics["seconds/total"]
    return (
        f"{metrics['iteration'] + 1:>3}/{total:<3} {metrics['stage']:<11}"
        f"{_percent(metrics.get('detection/accuracy')):>5} {_percent(metrics.get('detection/abstained')):>5}"
        f"{_percent(metrics.get('detection/invalid')):>5}  {_short(metrics.get('reward/spy'), '+z.3f', 6):>6}"
        f"  {_short(metrics.get('reward/civilian'), '+z.3f', 6):>6}  {_lengths(metrics):<7}"
        f" {_short(metrics.get('kl'), 'z.5f')} {seconds:{'.1f' if seconds < 9.95 else '.0f'}}"
    )


def measured_line(first: Mapping[str, Any], metrics: Mapping[str, Any]) -> str:
    """One line of at most 80 columns for a measurement, from the run's first on; empty where there was none."""
    parts = [
        f"{name} {_number(key, first[f'start/{key}'])} → {_number(key, metrics[key])}"
        for key, name in (
            ("quality/greedy", "quality"),
            ("quality/sampled", "sampled"),
            ("frozen/detection", "frozen"),
            ("strength/civilian", "civilians"),
            ("strength/spy", "spies"),
        )
        if metrics.get(key) is not None and first.get(f"start/{key}") is not None
    ]
    return f"  unseen documents: {', '.join(parts[:3])}" if parts else ""


def show_summary(
    console: Console, run: RunFolder, config: Config, metrics: Sequence[Mapping[str, Any]], preset: str
) -> None:
    """How a finished run of ``preset`` went, where everything is, and what to try next.

    A run that was measured on held-out documents is told of by that, with its curve and outputs before and after.
    """
    done = config.training.iterations
    title = f"{done} iteration{'s' if done > 1 else ''} done"
    rows = Table.grid(padding=(0, 2))
    measured = has_curve(metrics)
    if measured:
        _show_measured(console, metrics, title)
        _show_before_and_after(console, run.read_held_out())
    else:
        _add_changes(rows, metrics, _LIVE + _LENGTHS)
        rows.add_row("", "")
    for path, what in (
        (run.model, "the model, a plain Hugging Face folder"),
        (run.games, "every game played, Parquet"),
        (run.metrics_path, "one line an iteration"),
        *(((run.curve, "the curve as a picture"), (run.held_out, "outputs for unseen documents")) if measured else ()),
        (run.checkpoints, "to go on: --resume training.iterations=N"),
    ):
        rows.add_row(Text(str(path), overflow="fold"), Text(what, style="dim"))
    console.print(Panel(rows, title="files" if measured else title, title_align="left", expand=False))
    console.print("Next:")
    for command, what in (
        (f"spyrl play {preset} model.path={run.model}", "the trained model plays one game"),
        ("spyrl train task=math corpus.path=FILE", "your own documents, another task"),
        ("spyrl presets", "the published recipes"),
    ):
        console.print(Text.assemble(("  " + command + "\n", "bold"), ("      " + what, "dim")))


_LIVE = (
    ("detection/accuracy", "ballots that found the spy"),
    ("detection/position_bias", "position bias of the votes"),
)
_LENGTHS = (("length/spy", "spy's output, tokens"), ("length/civilian", "civilians' output, tokens"))
_MEASURED = (
    ("quality/sampled", "quality of sampled outputs"),
    ("frozen/detection", "detectors on games by the starting model"),
    ("strength/civilian", "starting detectors find the starting spy among new civilians"),
    ("strength/spy", "starting detectors miss the new spy among starting civilians"),
)
_MARKS = {"●": "quality/greedy", "○": "frozen/detection"}


def _add_changes(rows: Table, metrics: Sequence[Mapping[str, Any]], names: Sequence[tuple[str, str]]) -> None:
    first, last = metrics[0], metrics[-1]
    for key, name in names:
        if key in first and key in last:
            rows.add_row(name, f"{_number(key, first[key])} → {_number(key, last[key])}")


def _show_measured(console: Console, metrics: Sequence[Mapping[str, Any]], title: str) -> None:
    """The numbers of a measured run, and its curve."""
    changes = {
        key: f"{_number(key, points[0][1])} → {_number(key, points[-1][1])}"
        for key in ("quality/greedy", *dict(_MEASURED))
        if (points := series(metrics, key))
    }
    parts: list[Text | Table] = []
    if "quality/greedy" in changes:
        sentence = f"quality on unseen documents {changes['quality/greedy']}"
        parts += [Text.assemble((sentence, "bold"), ", never shown to training\n")]
    rows = Table.grid(padding=(0, 2))
    for key, name in _MEASURED:
        if key in changes:
            rows.add_row(name, changes[key])
    _add_changes(rows, metrics, _LENGTHS)
    console.print(Panel(Group(*parts, rows), title=title, title_align="left", expand=False))
    lines = {mark: points for mark, key in _MARKS.items() if (points := series(metrics, key))}
    console.print(Rule("on unseen documents, from the start to the end", align="left"))
    drawn = plot(lines, metrics[-1]["iteration"] + 1, min(console.width, 80))
    names = {"●": "quality, most likely output", "○": "spy found in games by the starting model"}
    drawn.append("     " + "   ".join(f"{mark} {names[mark]}" for mark in lines))
    curve = Text("\n".join(drawn) + "\n")
    curve.highlight_words(["●"], "bold blue")
    curve.highlight_words(["○"], "bold magenta")
    console.print(curve, no_wrap=True, overflow="crop")


def _show_before_and_after(console: Console, measurements: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    """Three held-out documents with the first and the last output for them, where the first left most to learn."""
    if len(measurements) < 2:
        return
    pairs = list(zip(measurements[0], measurements[-1], strict=True))
    scores = [before["quality"]["f1"] for before, _ in pairs if "f1" in before["quality"]]
    average = sum(scores) / max(len(scores), 1)
    worse = [pair for pair in pairs if pair[0]["quality"].get("f1", average) < average]
    title = "unseen documents, before and after training"
    if len(worse) >= 3:
        pairs, title = worse, "unseen documents that began worse than average, before and after training"
    console.print(Rule(title, align="left"))
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 3, 0, 0), show_lines=True)
    width = max((min(console.width, 100) - 10) // 3, 4)
    for name in ("document", "starting model", "trained model"):
        table.add_column(name, max_width=width)
    for before, after in pairs[:3]:
        cells = [_cut(console, Text(_plain(before["document"])), width)]
        cells += [_cut(console, _output(row), width) for row in (before, after)]
        table.add_row(*cells)
    console.print(table)
    console.print()


def _output(row: Mapping[str, Any]) -> Text:
    """A held-out output; where its quality is known and its lines answer to the document's, wrong ones are marked."""
    if row["output"] is None:
        return Text("(nothing was handed in)", style="dim")
    lines, wanted = _plain(row["output"]).splitlines(), _plain(row["document"]).splitlines()
    if not row["quality"] or len(lines) != len(wanted):
        return Text("\n".join(lines))
    return Text("\n").join(
        Text(line) if line == true else Text(f"{line} ✗", style="red") for line, true in zip(lines, wanted, strict=True)
    )


def _cut(console: Console, text: Text, width: int) -> Text:
    """The first lines of a text as it is wrapped at ``width``."""
    lines = text.wrap(console, width)
    shown = Text("\n").join(lines[:8])
    return shown.append("\n…") if len(lines) > 8 else shown


def show_game(console: Console, game: Game, product: str = "output") -> None:
    """One game, readably: the document with the hidden part marked, outputs, ballots, tally, rewards."""
    deal = game.deal
    console.print(Rule(f"document {deal.document.id}", align="left"))
    console.print(_marked(game, coloured=console.color_system is not None and not console.no_color))
    spied = f"player {deal.spy} is the spy; the marked part was hidden or changed in the spy's copy"
    console.print(Text(f"({spied if deal.spy else 'nobody is the spy'})", style="dim"))
    for output in game.outputs:
        spy = output.player == deal.spy
        rounds = f", round {output.round}" if max(each.round for each in game.outputs) > 1 else ""
        title = f"player {output.player}{rounds}" + (" · the spy" if spy else "")
        console.print(Rule(Text(title, style="bold red" if spy else "bold"), align="left"))
        console.print(Text(_plain(output.text)) if output.text else Text(f"(no {product} was handed in)", style="dim"))
    console.print(Rule("ballots", align="left"))
    for number, ballot in enumerate(game.ballots, 1):
        console.print(_ballot_line(ballot, number, deal.spy))
    if game.ballots and game.ballots[0].probabilities and game.ballots[0].voter is None:
        q = game.ballots[0].probabilities
        shares = [f"{number}: {share:.0%}" for number, share in enumerate(q[:-1], 1)] + [f"N/A: {q[-1]:.0%}"]
        console.print(Text("each drawn from   " + "  ".join(shares), style="dim"))
    console.print(Rule("tally and rewards", align="left"))
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for column in ("player", "role", "votes", "reward"):
        table.add_column(column, justify="left" if column == "role" else "right")
    for player, votes, reward in zip(deal.numbers, game.tally.votes, game.performing_rewards, strict=True):
        style = "red" if player == deal.spy else ""
        table.add_row(str(player), deal.role(player), str(votes), f"{reward:+z.3f}", style=style)
    console.print(table)
    console.print(f"{game.tally.abstained} abstained, {game.tally.invalid} could not be read; {_outcome(game)}")


def show_prompts(console: Console, settled: Settled) -> None:
    """What players and detectors were asked, each prompt once."""
    asked: dict[str, list[str]] = {}
    for turn in settled.performing:
        asked.setdefault(turn.prompt, []).append(f"player {turn.output.player}")
    for number, detected in enumerate(settled.detection, 1):
        who = f"player {detected.ballot.voter}'s ballot" if detected.ballot.voter else f"detector {number}"
        asked.setdefault(detected.prompt, []).append(who)
    for prompt, readers in asked.items():
        console.print(Rule(f"asked: {', '.join(readers)}", align="left"))
        console.print(Text(_plain(prompt)))


def _outcome(game: Game) -> str:
    if game.verdict is None:
        leaders = " and ".join(str(player) for player in game.tally.leaders)
        return f"the tally elects player {leaders}" if leaders else "the tally elects nobody"
    if all(ballot.probabilities for ballot in game.ballots):  # then the distribution decides, not the votes drawn
        return f"the spy was {'' if game.verdict.accuracy else 'not '}the most probable"
    if game.verdict.accuracy == 1:
        return "the spy was found"
    return "the spy tied for the most votes" if game.verdict.accuracy > 0 else "the spy got away"


def _marked(game: Game, *, coloured: bool) -> Text:
    """The document with the hidden part on yellow, or without colours in double brackets."""
    document = _plain(game.deal.document.text)
    text, position = Text(), 0
    for start, end in game.deal.hidden:
        hidden = document[start:end]
        text.append(document[position:start])
        text.append(hidden if coloured else f"[[{hidden}]]", style="black on yellow")
        position = end
    return text.append(document[position:])


def _ballot_line(ballot: Ballot, number: int, spy: int | None) -> Text:
    who = f"player {ballot.voter}" if ballot.voter else f"detector {number}"
    if ballot.choice is not None:
        right = ballot.choice == spy
        mark = " (right)" if right else ""
        line = Text(f"{who} → player {ballot.choice}{mark}", style="green" if right else "")
    else:
        line = Text(f"{who} → {'N/A' if ballot.outcome == 'abstained' else ballot.outcome.replace('_', ' ')}")
    if not ballot.probabilities:
        reason = " ".join(_plain(ballot.text).split())
        line.append(f"   {reason[:200]}{'…' if len(reason) > 200 else ''}", style="dim")
    return line


def _short(value: float | None, form: str, width: int = 7) -> str:
    """The number, in powers of ten where ``form`` would make it wider than ``width``; – if not known."""
    if value is None:
        return "–"
    text = format(value, form)
    return text if len(text) <= width or abs(value) < 1 else format(value, "+.0e" if form.startswith("+") else ".2g")


def _plain(text: str) -> str:
    """A document's or a model's text, character for character, without what would steer the terminal."""
    return text.translate(_CONTROL)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def _number(key: str, value: float) -> str:
    if key.startswith("quality/"):
        return _quality(value)
    return f"{value:.0f}" if key.startswith("length/") else f"{value:.0%}"


def _quality(value: float) -> str:
    """Two decimals; 1.00 is for what is perfect."""
    return f"{value if value == 1 else min(value, 0.99):.2f}"


def _lengths(metrics: Mapping[str, Any]) -> str:
    return f"{_short(metrics.get('length/spy'), '.0f')}/{_short(metrics.get('length/civilian'), '.0f')}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"

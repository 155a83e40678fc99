"""What a person sees in the terminal: a run as it goes on, its summary, and a replayed game."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from spyrl.config import Config
from spyrl.game import Ballot, Game
from spyrl.play import Settled
from spyrl.runs.folder import RunFolder

_PHASES = {
    "deal": "dealing",
    "perform": "performing",
    "detect": "detecting",
    "settle": "settling",
    "update": "learning",
    "record": "recording",
    "checkpoint": "saving a checkpoint",
    "model": "writing the model",
}


class RunDisplay:
    """Watches a run: a live line below a log of one line an iteration; without a terminal, only the log.

    An iteration's line: how often detectors were right, abstained and were unreadable; the rewards; the output
    lengths of spy and civilians in tokens; KL; seconds.
    """

    def __init__(self, console: Console, config: Config) -> None:
        self._console = console
        self._config = config
        self._done = 0
        self._seen = 0
        self._phase = "setting up"
        self._tokens = 0
        self._phase_begun = self._begun = time.monotonic()
        self._accuracy = self._stage = ""
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
        self._stage = metrics["gate/next"] if self._config.training.stages == "alternate" else metrics["stage"]
        self._accuracy = _percent(metrics.get("detection/accuracy"))
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
        if self._stage:
            now.append(f"training {self._stage}, spy found {self._accuracy}")
        return Group(progress, Text(" · ".join(now), style="dim", overflow="ellipsis", no_wrap=True))


_CONTROL = dict.fromkeys((*range(32), *range(127, 160)), "\ufffd") | {9: "\t", 10: "\n", 13: " "}
_HEADER = "  iter  stage       found  n/a   bad  spy     civ    length  kl      sec"


def iteration_line(metrics: dict[str, Any], total: int) -> str:
    """One line of at most 80 columns for an iteration."""
    lengths = f"{_short(metrics.get('length/spy'), '.0f')}/{_short(metrics.get('length/civilian'), '.0f')}"
    return (
        f"{metrics['iteration'] + 1:>3}/{total:<3} {metrics['stage']:<11}"
        f"{_percent(metrics.get('detection/accuracy')):>5} {_percent(metrics.get('detection/abstained')):>5}"
        f"{_percent(metrics.get('detection/invalid')):>5}  {_short(metrics.get('reward/spy'), '+z.3f'):>6}"
        f"  {_short(metrics.get('reward/civilian'), '+z.3f'):>6}  {lengths:<7} {_short(metrics.get('kl'), 'z.5f')}"
        f" {metrics['seconds/total']:.0f}"
    )


def show_summary(console: Console, run: RunFolder, config: Config, first: dict[str, Any], last: dict[str, Any]) -> None:
    """Where everything is after a finished run, how it went, and what to try next."""
    rows = Table.grid(padding=(0, 2))
    for key, name in (
        ("detection/accuracy", "ballots that found the spy"),
        ("detection/position_bias", "position bias of the votes"),
        ("length/spy", "spy's output, tokens"),
        ("length/civilian", "civilians' output, tokens"),
    ):
        if key in first and key in last:
            rows.add_row(name, f"{_number(key, first[key])} → {_number(key, last[key])}")
    rows.add_row("", "")
    for path, what in (
        (run.model, "the model, a plain Hugging Face folder"),
        (run.games, "every game played, Parquet"),
        (run.metrics_path, "one line an iteration"),
        (run.checkpoints, "to go on: --resume training.iterations=N"),
    ):
        rows.add_row(Text(str(path), overflow="fold"), Text(what, style="dim"))
    done = config.training.iterations
    title = f"{done} iteration{'s' if done > 1 else ''} done"
    console.print(Panel(rows, title=title, title_align="left", expand=False))
    console.print("Next:")
    for command, what in (
        (f"spyrl play model.path={run.model}", "the trained model plays one game"),
        ("spyrl train task=math corpus.path=FILE", "your own documents, another task"),
        ("spyrl presets", "the published recipes"),
    ):
        console.print(Text.assemble(("  " + command + "\n", "bold"), ("      " + what, "dim")))


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


def _short(value: float | None, form: str) -> str:
    """The number in at most 7 characters, in powers of ten where ``form`` would make it longer; – if not known."""
    if value is None:
        return "–"
    text = format(value, form)
    return text if len(text) <= 7 or abs(value) < 1 else format(value, "+.0e" if form.startswith("+") else ".2g")


def _plain(text: str) -> str:
    """A document's or a model's text, character for character, without what would steer the terminal."""
    return text.translate(_CONTROL)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def _number(key: str, value: float) -> str:
    return f"{value:.0f}" if key.startswith("length/") else f"{value:.0%}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"

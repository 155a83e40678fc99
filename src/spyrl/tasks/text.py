"""A task made of a few sentences: the game's rules are here once, a task only says what is to be written.

Both prompts put what all players share first (rules, document) and what differs last, so that the shared beginning
is computed once. Neither tells a player its number in the parallel game: all civilians of a game then read the very
same prompt.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from spyrl.errors import UsageError
from spyrl.game.settings import OutputForm
from spyrl.policy.base import Message
from spyrl.tasks.base import MARKER, DetectionTurn, PerformingTurn, read_output

PERFORMING = """\
This is a game for {{ players }} players. All of them are given the same {{ source }}, but one of them, the spy, gets \
a damaged copy: part of it is blotted out, missing or changed. Every player does the same work from its own copy. Then \
all the results are laid side by side and read against the undamaged {{ source }}, and a vote is held: who is the spy?

<document>
{{ observation }}
</document>

{% if said -%}
You are player {{ player }}. So far this has been handed in:

{{ said }}

{% endif -%}
{% if role == "spy" -%}
Your role: you are the spy, and this copy is the damaged one. Infer what it leaves out from what it shows, and do the \
work so well that nobody can tell. Do not mention your role or the damage.
{%- else -%}
Your role: you are not the spy, and this copy is complete. Let the work itself show that you know all of it. Do not \
mention your role or the game.
{%- endif %}

Your task: {{ instructions }}

{% if form == "whole" -%}
Answer with the {{ product }} and nothing else.
{%- elif form == "marked" -%}
You may think first. When you are ready, write a line that holds only

{{ marker }}

and below it the finished {{ product }}. The other players see only what stands below that line.
{%- else -%}
You may think first. Then put the finished {{ product }} into \\boxed{...}. The other players see only what stands in \
the last box.
{%- endif %}
"""

DETECTING = """\
{{ players }} players were given the same {{ source }}, but one of them, the spy, got a damaged copy (part of \
it blotted out, missing or changed) and had to guess the rest. Each handed in a {{ product }}. Find the spy.

{% if role == "spy" -%}
This is the damaged copy:
{%- else -%}
This is the {{ source }}:
{%- endif %}

<document>
{{ observation }}
</document>

This was handed in:

{{ outputs }}

What the players were asked: {{ instructions }}

{% if voter -%}
You are player {{ voter }}{% if role == "spy" %} and the spy yourself; vote so that you are not found out{% endif %}.
{%- if not self_vote %} You cannot vote for yourself.{% endif %}

{% endif -%}
What gives a spy away: {{ criteria }} Length, layout and tone tell nothing.

{% if form == "direct" -%}
Answer at once with \\boxed{number of the player}, or with \\boxed{N/A} if you cannot tell.
{%- else -%}
Go through the players one by one. Then end with \\boxed{number of the player}, or with \\boxed{N/A} if you cannot tell.
{%- endif %}
"""


@dataclass(frozen=True)
class TextTask:
    """A task in words. In YAML, these are the keys of the file."""

    name: str
    """As in ``task=NAME``."""
    source: str
    """What a document is, in the singular, as in "the same …"."""
    product: str
    """What a player hands in, as in "a …"."""
    instructions: str
    """The work, asked of every player alike."""
    criteria: str
    """What detectors should look for."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Settings for ``corpus`` and ``game`` that come with the task."""
    performing_template: str = PERFORMING
    """Jinja2 template of a player's prompt."""
    detecting_template: str = DETECTING
    """Jinja2 template of a detector's prompt."""
    marker: str = MARKER
    """The line that comes before a marked output."""
    ballot_opening: str = "\\boxed{"
    """How the assistant's turn is begun for a direct ballot."""
    ballot_closing: str = "}"
    """What follows the choice of a direct ballot."""

    def __post_init__(self) -> None:
        """Check that the templates can be read and that there is a marker to look for."""
        if not self.marker.strip():
            raise ValueError("marker must not be empty")
        for key in ("performing_template", "detecting_template"):
            try:
                _ENVIRONMENT.from_string(getattr(self, key))
            except jinja2.TemplateSyntaxError as error:
                raise ValueError(f"line {error.lineno} of {key}: {error.message}") from None

    def performing(self, turn: PerformingTurn) -> tuple[Message, ...]:
        """See `Task.performing`."""
        text = self._render(
            self._performing,
            players=turn.deal.players,
            observation=turn.observation or "(nothing is left of it)",
            role=turn.role,
            player=turn.player,
            round=turn.round,
            said=self._laid_out(turn.said, turn.deal.players) if turn.said else "",
            form=turn.form,
        )
        return (Message(role="user", content=text),)

    def detecting(self, turn: DetectionTurn) -> tuple[Message, ...]:
        """See `Task.detecting`."""
        text = self._render(
            self._detecting,
            players=turn.deal.players,
            observation=turn.observation or "(nothing is left of it)",
            outputs=self._laid_out(turn.outputs, turn.deal.players),
            role=turn.deal.role(turn.voter) if turn.voter else None,
            voter=turn.voter,
            self_vote=turn.self_vote,
            form=turn.form,
        )
        return (Message(role="user", content=text),)

    def read(self, text: str, form: OutputForm) -> str | None:
        """See `Task.read`."""
        return read_output(text, form, self.marker)

    @cached_property
    def _performing(self) -> jinja2.Template:
        return _ENVIRONMENT.from_string(self.performing_template)

    @cached_property
    def _detecting(self) -> jinja2.Template:
        return _ENVIRONMENT.from_string(self.detecting_template)

    def _render(self, template: jinja2.Template, **values: Any) -> str:
        try:
            return template.render(
                source=self.source,
                product=self.product,
                instructions=self.instructions.strip(),
                criteria=self.criteria.strip(),
                marker=self.marker,
                **values,
            ).strip()
        except Exception as error:  # whatever a template raises is its author's to read
            raise UsageError(f"task {self.name!r}: a template cannot be rendered: {error}") from None

    def _laid_out(self, outputs: tuple[Any, ...], players: int) -> str:
        """All outputs, player by player; a missing one is shown as missing."""
        rounds = max(output.round for output in outputs)
        blocks = []
        for player in range(1, players + 1):
            own = [output for output in outputs if output.player == player]
            for output in own:
                heading = f"Player {player}" + (f", round {output.round}" if rounds > 1 else "")
                text = output.text or f"(no {self.product} was handed in)"
                blocks.append(f"[{heading}]\n{_FORGED.sub('(', text)}")
        return "\n\n".join(blocks)


_FORGED = re.compile(r"^[ \t]*\[(?=\s*player\s*\d)", re.IGNORECASE | re.MULTILINE)
"""The heading of another player's output, written by a player into its own."""

_ENVIRONMENT = ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined, keep_trailing_newline=False)

"""A sample of a run's games, played by nobody: prompts are the real ones, answers are filler of an assumed length.

Dealing, prompts, cutting to fit, ballots and trajectories are the run's own code (`spyrl.play`, `spyrl.training`); only
the model is left out. Where its tokenizer is not on this machine, a simple one stands in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from spyrl.config import Config
from spyrl.corpus import BUNDLED, Corpus, CorpusSettings, Cursor, hub_data_set, open_corpus
from spyrl.errors import UsageError
from spyrl.game import RoleBaselines
from spyrl.game.deal import Document
from spyrl.planning.shape import local_folder
from spyrl.play import Settled, deal_games, detect, document_budget, perform, settle
from spyrl.policy import Completion, Request
from spyrl.policy.choices import choice_tree
from spyrl.policy.prompts import prompt_text, token_ids
from spyrl.tasks import load_task
from spyrl.tasks.base import MARKER

_SAMPLED_TOKENS = 2**18
"""Games are played, to plan all of an iteration's, as long as prompts at their limit have no more tokens in all."""

EXPECTED = 1024
"""Tokens that an answer is assumed to have where its limit is not lower."""


@dataclass(frozen=True)
class Lengths:
    """Tokens that an output and a reasoned ballot are assumed to have."""

    output: int
    ballot: int


@dataclass(frozen=True)
class Call:
    """One call of a policy: the prompt's token ids, samples and longest answer of every request.

    ``written`` is what an answer is assumed to have; 0 for a choice, and ``nodes`` are then how many places the
    model chooses at.
    """

    prompts: tuple[tuple[int, ...], ...]
    samples: tuple[int, ...]
    limit: int
    written: int
    nodes: int = 1


@dataclass(frozen=True)
class Games:
    """``sample`` of an iteration's ``games``: what each stage asks, and the settled games."""

    sample: int
    games: int
    performing: tuple[Call, ...]
    detection: tuple[Call, ...]
    settled: tuple[Settled, ...]
    assumed: tuple[str, ...]
    """What was assumed, in sentences for a person."""


def play_games(config: Config, lengths: Lengths, *, measure: bool = False) -> Games:
    """Play the first games of the run's first iteration; all where prompts are short.

    Documents are the corpus's own where it is on this machine or ``measure`` allows to fetch it, else texts as long as
    the settings let them be. Raises `UsageError` where no game can be played.
    """
    task = load_task(config.task)
    vocabulary, told = _vocabulary(config)
    filler = " ".join(_texts(config.task))
    wrapping = {
        "whole": ("", ""),
        "marked": (getattr(task, "marker", MARKER) + "\n", ""),
        "boxed": ("\\boxed{", "}"),
    }[config.game.output]
    template = dict(config.model.template or {})
    performer = ImaginedPolicy(vocabulary, filler, lengths.output, template, wrapping)
    detector = ImaginedPolicy(vocabulary, filler, lengths.ballot, template)
    budget = document_budget(task, performer, config.game)
    if budget < config.corpus.min_tokens:
        raise UsageError(
            f"game.max_prompt_tokens={config.game.max_prompt_tokens} leaves {max(budget, 0)} tokens for the document "
            "beside the rules and the outputs; raise it, or lower game.max_tokens"
        )
    corpus, where = _corpus(config, performer.count_tokens, budget, filler, measure)
    count = min(config.training.games, max(_SAMPLED_TOKENS // config.game.max_prompt_tokens, 4))
    documents, _ = corpus.take(Cursor(), count)
    deals, unfit = deal_games(documents, config.game, config.run.seed, 0)
    performances, unperformed = perform(deals, task, performer, config.game, config.run.seed)
    played, undetected = detect(performances, task, detector, config.game, config.run.seed)
    dropped = [*unfit, *unperformed, *undetected]
    if not played:
        raise UsageError(
            f"with outputs of {lengths.output} tokens none of {count} games could be played: {dropped[0].detail}"
        )
    settled, _ = settle(played, config.game, RoleBaselines(), config.run.seed)
    assumed = [where, told]
    if dropped:
        assumed.append(f"{len(dropped)} of {count} games could not be played: {dropped[0].detail}")
    return Games(
        len(settled),
        config.training.games,
        tuple(performer.calls),
        tuple(detector.calls),
        tuple(settled),
        tuple(each for each in assumed if each),
    )


class ImaginedPolicy:
    """A policy that answers with filler of ``length`` tokens, and notes what it was asked."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        filler: str,
        length: int,
        template: dict[str, Any],
        wrapping: tuple[str, str] = ("", ""),
    ) -> None:
        self.name = "imagined"
        self.calls: list[Call] = []
        self._vocabulary = vocabulary
        self._template = template
        self._wrapping = wrapping  # what a text begins and ends with, so that an output is read from it
        self._length = length
        self._filler = vocabulary.ids(filler)
        while len(self._filler) < 2 * length:
            self._filler += self._filler

    def count_tokens(self, text: str) -> int:
        """See `Policy.count_tokens`."""
        return len(self._vocabulary.ids(text))

    def prompt_tokens(self, request: Request) -> int:
        """See `Policy.prompt_tokens`."""
        return len(self._prompt(request))

    def generate(self, requests: Sequence[Request]) -> list[list[Completion]]:
        """See `Policy.generate`."""
        prompts = [tuple(self._prompt(request)) for request in requests]
        if not requests:
            return []
        first = requests[0]
        limit, written, nodes = first.sampling.max_tokens, min(self._length, first.sampling.max_tokens), 1
        if first.choices:
            tree = choice_tree(self._vocabulary.ids, first.begin, first.choices, first.closing)
            limit, written, nodes = 1, 0, len(tree.nodes)
        self.calls.append(Call(tuple(prompts), tuple(each.samples for each in requests), limit, written, nodes))
        return [
            [self._choice(request, prompt, at) if request.choices else self._text(request, prompt, seed)
             for at, seed in enumerate(request.seeds)]
            for request, prompt in zip(requests, prompts, strict=True)
        ]  # fmt: skip

    def _text(self, request: Request, prompt: tuple[int, ...], seed: int) -> Completion:
        length = min(self._length, request.sampling.max_tokens)
        begin = seed % max(len(self._filler) - length, 1)
        ids = self._filler[begin : begin + length]
        text = self._vocabulary.text(ids)
        text = text.join(self._wrapping)
        return Completion(text, "stop", prompt_ids=prompt, token_ids=tuple(ids), logprobs=(0.0,) * len(ids))

    def _choice(self, request: Request, prompt: tuple[int, ...], at: int) -> Completion:
        tree = choice_tree(self._vocabulary.ids, request.begin, request.choices, request.closing)
        chosen = at % len(request.choices)
        path = tree.paths[chosen]
        even = (1 / len(request.choices),) * len(request.choices)
        allowed = tuple(tree.allowed[path[:length]] for length in range(len(path)))
        return Completion(request.choices[chosen], "choice", "", prompt, path, (0.0,) * len(path), even, allowed)

    def _prompt(self, request: Request) -> list[int]:
        return self._vocabulary.prompt(request, self._template)


# Tokens


class Vocabulary:
    """The model's own tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def ids(self, text: str) -> list[int]:
        """The tokens of a text, without special ones."""
        return token_ids(self._tokenizer, text)

    def text(self, ids: Sequence[int]) -> str:
        """The text of these tokens."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def prompt(self, request: Request, template: dict[str, Any]) -> list[int]:
        """The tokens of a request's prompt, its chat template included."""
        return self.ids(prompt_text(self._tokenizer, request, template, self._tokenizer.name_or_path))


class StandIn(Vocabulary):
    """Words and parts of long words, digits and signs: about as many as a vocabulary of 50,000 or more needs."""

    _PIECES = re.compile(r" ?[^\W\d_]{1,9}|\d|_+| ?[^\w\s]{1,2}|\s")

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._pieces: list[str] = []

    def ids(self, text: str) -> list[int]:
        """See `Vocabulary.ids`."""
        found = []
        for piece in self._PIECES.findall(text):
            number = self._numbers.setdefault(piece, len(self._pieces))
            if number == len(self._pieces):
                self._pieces.append(piece)
            found.append(number)
        return found

    def text(self, ids: Sequence[int]) -> str:
        """See `Vocabulary.text`."""
        return "".join(self._pieces[number] for number in ids)

    def prompt(self, request: Request, template: dict[str, Any]) -> list[int]:
        """See `Vocabulary.prompt`; the template is one of eight tokens a message."""
        text = "".join(f"<user>\n{message['content']}<end>\n" for message in request.messages)
        return self.ids(f"{text}<assistant>\n{request.begin}")


def _vocabulary(config: Config) -> tuple[Vocabulary, str]:
    """The model's tokens, and what to say of them."""
    folder = local_folder(config.model.path)
    if folder is None:
        return StandIn(), "tokens by a stand-in for the model's tokenizer, which is not on this machine"
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # as with models, loaders raise what they like
        raise UsageError(f"the tokenizer of {config.model.path!r} in {folder} cannot be loaded: {error}") from error
    if not getattr(tokenizer, "chat_template", None):
        raise UsageError(f"model {config.model.path!r} has no chat template (looked in {folder})")
    return Vocabulary(tokenizer), ""


# Documents


def _corpus(
    config: Config, count_tokens: Callable[[str], int], budget: int, filler: str, measure: bool
) -> tuple[Corpus, str]:
    """The corpus, or one made up for it, and what to say of it."""
    settings = config.corpus
    if measure or hub_data_set(settings.path) is None:
        corpus = open_corpus(settings, seed=config.run.seed, count_tokens=count_tokens, max_tokens=budget)
        return corpus, f"documents: the first of {settings.path}"
    most = min(budget, settings.max_tokens or budget)
    rows = _MadeUp(filler, settings.max_words or most)
    corpus = Corpus(
        settings, rows, seed=config.run.seed, count_tokens=count_tokens, max_tokens=most, description="made up"
    )
    length = f"{settings.max_words:,} words" if settings.max_words else f"{most:,} tokens"
    return corpus, f"documents as long as they may be, {length} (--measure reads the corpus's)"


class _MadeUp:
    """Documents of ``words`` words out of the sample's text."""

    size = 64

    def __init__(self, filler: str, words: int) -> None:
        pool = filler.split(" ")
        while len(pool) < 2 * words:
            pool += pool
        step = max((len(pool) - words) // self.size, 1)
        self._rows = [Document(str(number), " ".join(pool[number * step :][:words])) for number in range(self.size)]

    def block(self, number: int) -> list[Document]:
        return [] if number else self._rows


def _texts(task: str) -> list[str]:
    """The bundled sample of this task, or stories' prompts for a task that has none."""
    path = f"bundled:{task if task in BUNDLED else 'writing'}"
    corpus = open_corpus(CorpusSettings(path=path), seed=0, count_tokens=len, max_tokens=10**9)
    return [document.text for document in corpus.one_epoch()]


def expected_lengths(config: Config, output: int | None = None, ballot: int | None = None) -> Lengths:
    """The lengths a person states, or else `EXPECTED` where limits are not lower."""
    game = config.game
    return Lengths(min(output or EXPECTED, game.max_tokens), min(ballot or EXPECTED, game.detectors.max_tokens))

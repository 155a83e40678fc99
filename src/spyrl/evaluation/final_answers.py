r"""What a response's final answer is, and which option it chooses.

The last ``\boxed{...}`` counts, since models revise themselves; boxes side by side in one line are one answer
together. Without a box: what follows ``####`` or "the answer is", else the last formula or number of the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from spyrl.evaluation.equality import same, tidy

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

Found = Literal["boxed", "marked", "last", "nothing"]

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BETWEEN = re.compile(
    r"[ \t$,;&\\()]*(?:(?:\\text\s*\{\s*)?(?:and|or)\b\s*\}?)?[ \t$,;&\\()]*(?:\\?[A-Za-z]\w{0,8}\s*=\s*)?"
)
_HASHES = re.compile(r"####[ \t]*(\S[^\n]*)")
_MARK = re.compile(
    r"\b(?:final\s+)?(?:answer|result)(?:\s+(?:choice|option))?\**\s*(?:is|are|was|:|=)\**\s*:?\**\s*(\S[^\n]*)",
    re.IGNORECASE,
)
_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$\n]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])[-−]?[$€£]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:\s?/\s?\d+)?(?:[eE][-+]?\d+)?\s?%?")
_LETTER_FIRST = re.compile(
    r"^\W*(?:(?i:option|choice|answer)\s*(?:is)?\s*:?\s*)?[(\[{]*([A-Z])(?![\w'’])[)\]}]*[\s.:)\-–,]*(.*)$", re.DOTALL
)
_CHOSEN = re.compile(
    r"(?i:answer|option|choice)\b[^.\n]{0,30}?(?:\bis\b|:)?[*\s]*(?i:option\s+|choice\s+)?"
    r"(\([A-Z]\)|\[[A-Z]\]|\*\*\(?[A-Z]\)?\*\*|\b[A-Z](?![\w'’])(?!\s+[a-z]))"
)
_ALONE = re.compile(r"^\W*([A-Z])(?:[).:](?:\s(?!.*\([A-Z]\)).*)?|\W*)$")
_IN_BRACKETS = re.compile(r"\(([A-Z])\)|\*\*([A-Z])\*\*")


@dataclass(frozen=True)
class FinalAnswer:
    """The text of a response's final answer, ``""`` where there is nothing, and where it was found."""

    text: str
    found: Found


def final_answer(response: str) -> FinalAnswer:
    r"""What ``response`` ends up answering.

    >>> final_answer(r"So \boxed{3}. No: \boxed{4}!").text, final_answer("That makes 18 eggs.").text
    ('4', '18')
    """
    boxed = _boxed(response)
    if boxed is not None:
        return FinalAnswer(boxed, "boxed")
    if marked := _marked(response):
        return FinalAnswer(_leading(marked), "marked")
    last = _last(response)
    return FinalAnswer(last, "last" if last else "nothing")


def chosen(response: str, options: Sequence[str]) -> tuple[int | None, Found]:
    r"""Which of ``options`` a response chooses, by its letter or its text, and where that was found.

    ``None`` where it chooses none, several, or a letter with the text of another.

    >>> chosen(r"\boxed{\text{(B) 7}}", ["5", "7"]), chosen(r"\boxed{7}", ["5", "7"])
    ((1, 'boxed'), (1, 'boxed'))
    """
    boxed = _boxed(response)
    if boxed is not None:
        return _option(boxed, options), "boxed"
    if marked := _marked(response):
        for said in (marked, _leading(marked)):
            if (option := _option(said, options)) is not None:
                return option, "marked"
    if letters := _CHOSEN.findall(response):
        letter = re.sub(r"\W", "", letters[-1]).upper()
        if letter and LETTERS.index(letter) < len(options):
            return LETTERS.index(letter), "marked"
    lines = [line for line in response.splitlines() if line.strip()]
    if lines and (alone := _ALONE.match(lines[-1])) and LETTERS.index(alone[1]) < len(options):
        return LETTERS.index(alone[1]), "last"
    bracketed = [first or second for first, second in _IN_BRACKETS.findall(response)]
    bracketed = [letter for letter in bracketed if LETTERS.index(letter) < len(options)]
    return (LETTERS.index(bracketed[-1]), "last") if bracketed else (None, "nothing")


def boxes(text: str) -> list[tuple[int, int, str]]:
    r"""All closed ``\boxed{...}`` outside others: where each begins and ends, and what is in it."""
    found = []
    position = 0
    while match := _BOX.search(text, position):
        position, depth = match.end(), 1
        while position < len(text) and depth:
            if text[position] == "\\":
                position += 1  # an escaped brace is no brace
            elif text[position] in "{}":
                depth += 1 if text[position] == "{" else -1
            position += 1
        if depth:  # it is never closed; what looks like a box in it may be one
            position = match.end()
        else:
            found.append((match.start(), position, text[match.end() : position - 1].strip()))
    return found


def _boxed(response: str) -> str | None:
    """The last box, or those side by side with it as a list."""
    found = boxes(response)
    if not found:
        return None
    group = [found[-1]]
    for before in reversed(found[:-1]):
        if not _BETWEEN.fullmatch(response[before[1] : group[0][0]]):
            break
        group.insert(0, before)
    contents = list(dict.fromkeys(content for _, _, content in group))
    content = ", ".join(contents)
    return inner if (inner := _boxed(content)) is not None else content


def _marked(response: str) -> str:
    """What follows the last "####" or else the last "the answer is": the rest of the line, or a formula below it."""
    for pattern in (_HASHES, _MARK):
        if marks := list(pattern.finditer(response)):
            start = marks[-1].start(1)
            below = _FORMULA.match(response, start)
            return below[0] if below and below.end() > marks[-1].end() else marks[-1][1].strip()
    return ""


def _leading(said: str) -> str:
    """The answer that ``said``, the rest of a line, begins with: a formula, a number with its unit, or all of it."""
    said = said.strip().strip("*").strip()
    formula, number = _FORMULA.search(said), _NUMBER.search(said)
    if formula and (number is None or formula.start() <= number.start()):
        return _inside(formula)
    if len(said) <= 40 and not re.search(r"[A-Za-z]{3,}\s+[A-Za-z]+", said):  # "(2, 3)", "x = 5", "18 dollars."
        return said
    if number:
        rest = re.match(r"\s*[A-Za-z%°]+(?:/[A-Za-z]+|\^\d)?", said[number.end() :])
        following = rest[0].strip().lower() if rest else ""
        return (number[0] + (rest[0] if rest and following in _KEPT else "")).strip()
    return re.split(r"[.;]\s|[.;]$|\sbecause\b|,\s", said)[0]


_KEPT = frozenset(("hundred", "thousand", "million", "billion", "trillion", "dozen", "cents", "percent"))


def _last(response: str) -> str:
    """The last formula or number of a text, whichever ends later; ``""`` where there is neither."""
    formulas, numbers = list(_FORMULA.finditer(response)), list(_NUMBER.finditer(response))
    if formulas and (not numbers or formulas[-1].end() >= numbers[-1].end()):
        return _inside(formulas[-1])
    if not numbers:
        return ""
    last = numbers[-1]
    rest = re.match(r"\s*([a-z]+)", response[last.end() :])
    return last[0].strip() + (f" {rest[1]}" if rest and rest[1] in _KEPT else "")


def _inside(formula: re.Match[str]) -> str:
    return next(part for part in formula.groups() if part is not None).strip()


def _option(said: str, options: Sequence[str]) -> int | None:
    plain = re.sub(r"\\(?:text|textbf|mathrm|mathbf|mbox|bf)\s*\{([^{}]*)\}", r"\1", said)
    plain = re.sub(r"[*$`]|\\[()]", "", plain).strip()
    whole = _by_text(said, options)
    letter = _LETTER_FIRST.match(plain) or (re.fullmatch(r"\W*([a-z])\W*", plain) if len(plain) <= 4 else None)
    if letter is None or LETTERS.index(letter[1].upper()) >= len(options):
        return whole
    named = LETTERS.index(letter[1].upper())
    rest = letter[2].strip() if letter.lastindex == 2 else ""
    if not rest:
        return named
    if whole is not None:  # an option that begins with a letter, as "A cat"
        return whole
    if re.match(r"(?:and|or|,|/|&)?\s*\(?[A-Z]\)?(?![\w'’])", rest) and re.fullmatch(
        r"(?:(?:and|or|,|/|&)?\s*\(?[A-Z]\)?[\s,]*)+", rest
    ):
        return None  # several letters
    other = _by_text(rest, options)
    return named if other in (None, named) or _plain(options[named]) == _plain(rest) else None


def _by_text(said: str, options: Sequence[str]) -> int | None:
    """The one option whose text this is, word for word or else as mathematics."""
    if not (plain := _plain(said)):
        return None
    equal = [number for number, option in enumerate(options) if _plain(option) == plain]
    if not equal and re.search(r"[\d\\]", said):
        equal = [number for number, option in enumerate(options) if same(option, said)]
    return equal[0] if len(equal) == 1 else None


def _plain(text: str) -> str:
    text = re.sub(r"\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{([^{}]*)\}", r"\1", tidy(text))
    return re.sub(r"\s+", " ", text).casefold().strip(" .")

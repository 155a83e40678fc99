r"""Whether two answers are the same, as a careful person would say.

Plain numbers (decimals, fractions, thousands, powers of ten, number words) are compared here, exactly or, where one
is a decimal, to six decimals and at least as many digits; units are read and converted. Everything else is compared
by ``math-verify``: https://github.com/huggingface/Math-Verify. It gives up after `SECONDS`, on the main thread.
"""

from __future__ import annotations

import logging
import re
import threading
import unicodedata
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from spyrl.evaluation.units import Unit, read_unit

SECONDS = 5
"""How long one step of math-verify may take; what takes longer, such as a tower of powers, is never the answer."""

_LONGEST = 1000  # characters: nothing longer is an answer, and parsing takes more than linear time

_SYMBOLS = {
    "−": "-",
    "–": "-",
    "—": "-",
    "×": r"\times ",
    "·": r"\cdot ",
    "⋅": r"\cdot ",
    "÷": "/",
    "⁄": "/",
    "π": r"\pi ",
    "∞": r"\infty ",
    "∪": r"\cup ",
    "∩": r"\cap ",
    "∈": r"\in ",
    "≤": r"\le ",
    "≥": r"\ge ",
    "≠": r"\ne ",
    "≈": r"\approx ",
    "±": r"\pm ",
    "θ": r"\theta ",
    "°": r"^\circ ",
    "\u00a0": " ",
    "\u2009": " ",
    "\u202f": " ",
    "，": ",",
    "：": ":",
    "（": "(",
    "）": ")",
    "。": ".",
}
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_LAYOUT = re.compile(
    r"(?<!\\)\\(?:(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle|limits)(?![A-Za-z])\s*|[!()\[\]])"
)
_SPACES = re.compile(r"(?<!\\)\\(?:[,;: ]|q?quad(?![A-Za-z]))|~")
_WRAPPED = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|operatorname|bf|rm)\s*\{([^{}]*)\}")
_POWER = r"(?:\s*\^\s*(?:\{\s*[-+]?\d+\s*\}|[-+]?\d))?"
_UNIT_AT_END = re.compile(
    rf"(?:(?:\s|\\cdot|/)*\\(?:text|textrm|mathrm|mbox|operatorname|rm)\s*\{{[^{{}}]*\}}{_POWER})+\s*$"
)
_DEGREES = re.compile(r"\s*\^\s*\{?\s*\\(?:circ|degree)\s*\}?\s*(?:\\(?:text|mathrm)\{\s*)?([CF]?)\s*\}?\s*$")
_MINUTES = re.compile(r"(?<=\d)\s*(?:\^\s*\{?\s*((?:\\prime\s*)+)\}?|''?)$")
_INTEGER = r"\d{1,3}(?:[, ]\d{3})+(?![\d])|\d+"
_DECIMAL = rf"(?:(?:{_INTEGER})(?:\.\d*)?|\.\d+)"
_TEN = r"(?:\\times|\\cdot|\*|x)\s*10\s*\^\s*(?:\{\s*([-+]?\d{1,4})\s*\}|([-+]?\d{1,4}))"
_NO_GROUPS = _TEN.replace("([", "(?:[")
_PLAIN = re.compile(rf"({_DECIMAL})(?:\s*{_TEN}|[eE]([-+]?\d{{1,4}}))?")
_POWER_OF_TEN = re.compile(r"10\s*\^\s*(?:\{\s*([-+]?\d{1,4})\s*\}|([-+]?\d))")
_QUOTIENT = re.compile(rf"(?:(\d+)\s*(?:\\?\s|(?=\\frac)))?\s*(?:({_DECIMAL})\s*/\s*({_DECIMAL}))")
_FRACTION = re.compile(
    rf"(?:(\d+)\s*)?\\frac\s*(?:\{{\s*([-+]?{_DECIMAL})\s*\}}|(\d))\s*(?:\{{\s*([-+]?{_DECIMAL})\s*\}}|(\d))"
)
_WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}
_NUMBER_FIRST = re.compile(
    rf"\s*([-+]?\s*(?:\d+\s+\d+\s*/\s*\d+|(?:\d+\s*)?\\frac\s*\{{[^{{}}]*\}}\s*\{{[^{{}}]*\}}|{_DECIMAL}(?:\s*/\s*\d+|\s*{_NO_GROUPS})?))(.*)",
    re.DOTALL,
)
_BARE_UNIT = re.compile(r"[A-Za-zµμÅ%¢€£][A-Za-zµμÅ/ .\-]*(?:\^\{?-?\d\}?)?(?:\s*[/ ]\s*[A-Za-z]+(?:\^\{?-?\d\}?)?)*")
_NO_UNIT = re.compile(r"\b(?:or|and|to|not|if|times|plus|minus|pi|sqrt|infinity)\b")
_EXPONENT = re.compile(r"(?<![A-Za-z\\_^{\d.])(\d+(?:\.\d+)?)[eE]([-+]?\d{1,3})(?![\w.])")
_BASE = re.compile(r"_\{?(?:\\text\{)?\s*(\w+)\s*\}?\}?$")
_IN_WORDS = re.compile(r"(?<=[\w}])\s*\([A-Za-z][A-Za-z ,'\-]{2,}\)$")
_ASIDE = re.compile(r"^(?:\\approx|approximately|about|exactly|roughly|or|is|are|of|=|:|~)\s*", re.IGNORECASE)
_SAID_FIRST = re.compile(r"^\\(?:text|mathrm|mbox)\s*\{[^{}\d]*\}(?=\s*[-+\d\\])")
_ASSIGNED = re.compile(r"^\s*\\?[A-Za-z][\w\\{}' ]{0,40}?(?:\([\w, ]*\))?\s*(?:=|\\approx)\s*([^=,;<>]+?)\s*$")
_FILLER = re.compile(r"^(?:(?:the|a|an|it|is|are|was|answer|option|choice)\s+)+")
_PREDICATE = re.compile(r"\s(?:is|are|was|has|have|had|does|did|because|since)\b(?!.*\bnot\b)")
_LETTER = re.compile(r"\(?([A-Z])\)?")
_LETTER_FIRST = re.compile(r"(?:[Oo]ption |[Cc]hoice )?\(?([A-Z])\)?(?:[.:,)]|\s|$)")


@dataclass(frozen=True)
class Number:
    """A plain number, and whether it was written as a decimal and so may be rounded."""

    value: Fraction
    rounded: bool


def same(truth: str, answer: str) -> bool | None:
    r"""Whether ``answer`` is right where ``truth`` is; ``None`` where that could not be found out in time.

    Both are LaTeX or plain text without a box around. The comparison is not symmetric: a unit that ``truth`` leaves
    out may be in ``answer``.

    >>> same(r"\frac{1}{2}", "0.5"), same("5", "-5")
    (True, False)
    """
    if len(answer) > _LONGEST:
        return False
    truth, answer = tidy(truth), tidy(answer)
    if wrapped := _WRAPPED.fullmatch(answer):
        answer = tidy(wrapped[1])
    if not answer:
        return False
    if _squeezed(truth) == _squeezed(answer):
        return True
    if phrase := _phrase(truth):
        said = _words(answer)
        return said == phrase or (said.startswith(phrase) and bool(_PREDICATE.match(said[len(phrase) :])))
    if letter := _LETTER.fullmatch(_WRAPPED.sub(r"\1", truth)):  # of an option, its text may follow
        first = _LETTER_FIRST.match(_WRAPPED.sub(r"\1", answer))
        return first is not None and first[1] == letter[1]
    if r"\approx" in answer and r"\approx" not in truth:  # an exact value and a rounded one
        found = [same(truth, part) for part in answer.split(r"\approx", 1) if part.strip()]
        return True if True in found else None if None in found else False
    true_base, base = _BASE.search(truth), _BASE.search(answer)
    if true_base and base and true_base[1] != base[1]:
        return False
    answer = _IN_WORDS.sub("", answer)
    if "=" not in truth and (assigned := _ASSIGNED.match(answer)):
        answer = assigned[1]
    return _same_measures(truth, answer)


def tidy(text: str) -> str:
    """``text`` with one spelling for what means the same: symbols, spacing, dollar signs, a full stop at the end."""
    text = "".join(_vulgar(character) for character in text)
    text = re.sub("[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda match: "^{" + match[0].translate(_SUPERSCRIPTS) + "}", text)
    for symbol, latex in _SYMBOLS.items():
        text = text.replace(symbol, latex)
    text = re.sub(r"√\s*(?:\(([^()]*)\)|\{([^{}]*)\}|(\w+))", r"\\sqrt{\1\2\3}", text)
    text = re.sub(r"(?<![A-Za-z\\])sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"(?<![A-Za-z\\])pi(?![A-Za-z])", r"\\pi ", text)
    text = re.sub(r"(?<![A-Za-z\\])(?:infinity|inf|oo)(?![A-Za-z])", r"\\infty ", text)
    text = re.sub(r"\\[dtc]frac(?![A-Za-z])", r"\\frac", text)
    text = text.replace("<=", r"\le ").replace(">=", r"\ge ").replace("{,}", ",").replace("\\%", "%")
    text = re.sub(r"(?<=\d),\\!(?=\d{3})", ",", text)
    text = _SPACES.sub(" ", _LAYOUT.sub("", text))
    text = re.sub(r"(?<=[\w)}])\*\*(?=[\w({-])", "^", text).replace("**", "").strip("`_* \n\t")
    text = re.sub(r"\\?\$|\\(?:pounds|euro)\b|[€£¥](?=\s*\d)", "", text)
    return re.sub(r"\s+", " ", text).strip().rstrip(".,;:").strip()


def read_number(text: str) -> Number | None:
    r"""The plain number that a tidied text is: an integer, decimal, fraction, mixed number or a word for one.

    >>> read_number(r"1,234"), read_number("4 2/3").value, read_number("x")
    (Number(value=Fraction(1234, 1), rounded=False), Fraction(14, 3), None)
    """
    text = re.sub(r"(?<=\d)\s*(?:" + "|".join(_SCALES) + r")s?$", lambda match: f" {match[0].strip()}", text.strip())
    words = text.lower().rsplit(" ", 1)
    if len(words) == 2 and words[1].rstrip("s") in _SCALES and (count := read_number(words[0])):
        return Number(count.value * _SCALES[words[1].rstrip("s")], count.rounded)
    if text.lower() in _WORDS:
        return Number(Fraction(_WORDS.index(text.lower())), False)
    while len(text) > 2 and text[0] == "{" and text.find("}") == len(text) - 1:
        text = text[1:-1].strip()
    sign = -1 if text.startswith("-") else 1
    text = text[1:].strip() if text[:1] in ("-", "+") else text
    if match := _PLAIN.fullmatch(text):
        digits, *exponents = match.groups()
        exponent = next((each for each in exponents if each is not None), "0")
        return Number(sign * _decimal(digits) * Fraction(10) ** int(exponent), "." in digits or exponent[0] == "-")
    if match := _POWER_OF_TEN.fullmatch(text):
        return Number(sign * Fraction(10) ** int(match[1] or match[2]), False)
    if match := _QUOTIENT.fullmatch(text):
        whole, over, under = match.groups()
    elif match := _FRACTION.fullmatch(text):
        whole, over, under = match[1], match[2] or match[3], match[4] or match[5]
    else:
        return None
    if not _decimal(under):
        return None
    return Number(sign * (Fraction(int(whole or 0)) + _decimal(over) / _decimal(under)), "." in over + under)


def _same_measures(truth: str, answer: str) -> bool | None:
    """Compare what may have units."""
    truth, true_unit = _split_unit(truth, bare=2)
    number = read_number(truth)
    answer, unit = _split_unit(answer, bare=1 if number else 0)
    answer = _ASIDE.sub("", _SAID_FIRST.sub("", answer))
    other = read_number(answer)
    known, given = read_unit(true_unit) if true_unit else None, read_unit(unit) if unit else None
    if known and given and known.kinds != given.kinds:
        return False
    if number and other:
        if known and given:
            return _close(_times(number, known), _times(other, given))
        if _close(number, other):
            return True
        percent = [_is_percent(each) for each in (known, given)]
        if percent == [True, False] and not unit:
            return _close(_hundredth(number), other)
        return percent == [False, True] and not true_unit and _close(number, _hundredth(other))
    if known and given and known.size != given.size:
        return False
    return _verified(truth, answer, number or other)


def _split_unit(text: str, *, bare: int) -> tuple[str, str]:
    """What is measured and the unit, if there is one.

    Letters without LaTeX around may be a unit where they are at least ``bare``, and not 0: one of `read_unit` or, with
    ``bare`` 1, a word of three letters; the truth's ``15m`` may be a product.
    """
    if match := _DEGREES.search(text):
        return text[: match.start()].strip() or text, f"°{match[1]}"
    if match := _MINUTES.search(text):
        return text[: match.start()], "arc"
    if text.endswith(("%", "\\percent")):
        return text.removesuffix("%").removesuffix("\\percent").strip(), "%"
    match = _UNIT_AT_END.search(text)
    if match and match.start() > 0:
        unit = _WRAPPED.sub(r" \1", match[0]).strip()
        if read_unit(unit) is not None or not re.search(r"\b(?:or|and)\b", unit):
            return text[: match.start()].strip(), unit
    if bare and (match := _NUMBER_FIRST.fullmatch(text)):
        number, rest = match[1].strip(), _WRAPPED.sub(r"\1", match[2]).strip()
        scale, _, after = rest.partition(" ")
        if scale.lower().rstrip("s") in _SCALES:
            number, rest = f"{number} {scale}", after.strip()
        if rest and _BARE_UNIT.fullmatch(rest) and not _NO_UNIT.search(rest):
            known = read_unit(rest) is not None and len(rest) >= bare
            if known or (bare == 1 and re.search(r"[A-Za-z]{3}", rest)):
                return number, rest
        elif not rest:
            return number, ""
    return text, ""


def _verified(truth: str, answer: str, number: Number | None) -> bool | None:
    """What math-verify says; where one of the two is a plain ``number``, the other must have its size, too."""
    from math_verify import LatexExtractionConfig, parse, verify
    from math_verify.errors import TimeoutException

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns of every timeout
    seconds = SECONDS if threading.current_thread() is threading.main_thread() else None
    whole = LatexExtractionConfig()  # by default it drops units at the end, and with them the t of (1/m)t
    whole = replace(whole, normalization_config=replace(whole.normalization_config, units=False))
    try:
        parsed = [
            parse(
                f"\\boxed{{{_EXPONENT.sub(_power_of_ten, text)}}}",
                (whole,),
                parsing_timeout=seconds,
                raise_on_error=True,
            )
            for text in (truth, answer)
        ]
        found = bool(verify(*parsed, allow_set_relation_comp=True, timeout_seconds=seconds, raise_on_error=True))
        if found and number is not None and 0 < abs(number.value) < 1:  # six decimals say little of a small number
            return all(_has_size(each[0], float(number.value)) for each in parsed if each)
        return found
    except TimeoutException:
        return None
    except RecursionError:
        return None
    except Exception:  # whatever cannot be parsed or compared is not the same
        return False


def _has_size(expression: Any, size: float) -> bool:
    try:
        return abs(complex(expression.doit().evalf()) - size) <= 1e-4 * abs(size)
    except (TypeError, ValueError, AttributeError):
        return True  # no number: an equation, a set


def _close(one: Number, other: Number) -> bool:
    """Exactly equal; a decimal to six decimals and, where it is small, to as many digits."""
    if one.value == other.value:
        return True
    if not one.rounded and not other.rounded:
        return False
    size = max(abs(one.value), abs(other.value))
    return abs(one.value - other.value) <= Fraction(1, 10**6) * min(Fraction(1), 2 * size)


def _times(number: Number, unit: Unit) -> Number:
    return Number(number.value * unit.size, number.rounded)


def _hundredth(number: Number) -> Number:
    return Number(number.value / 100, number.rounded)


def _is_percent(unit: Unit | None) -> bool:
    return unit is not None and unit.kinds == (("%", 1),)


def _decimal(digits: str) -> Fraction:
    return Fraction(digits.replace(",", "").replace(" ", "").rstrip(".") or "0")


def _power_of_ten(match: re.Match[str]) -> str:
    return f"{match[1]} \\times 10^{{{match[2]}}}"


def _vulgar(character: str) -> str:
    """½ as a fraction; full-width letters and digits as the usual ones."""
    if unicodedata.decomposition(character).startswith("<fraction>"):
        over, under = unicodedata.normalize("NFKC", character).split("⁄")
        return f"\\frac{{{over}}}{{{under}}}"
    return unicodedata.normalize("NFKC", character) if "！" <= character <= "～" else character


def _squeezed(text: str) -> str:
    return re.sub(r"\s+|(?<=[_^])\{(?=\w\})|(?<=[_^]\{\w)\}", "", _WRAPPED.sub(r"\1", text))


def _phrase(truth: str) -> str:
    """The words that ``truth`` is, if it is words and no mathematics."""
    wrapped = _WRAPPED.fullmatch(truth)
    if wrapped and re.search(r"[A-Za-z]{2}", wrapped[1]) and not re.search(r"\d", wrapped[1]):
        return _words(wrapped[1])
    return _words(truth) if re.fullmatch(r"[A-Za-z][a-z]{2,}(?:[ '\-][A-Za-z]+)*", truth) else ""


def _words(text: str) -> str:
    text = _WRAPPED.sub(r"\1", text)
    return _FILLER.sub("", " ".join(re.findall(r"[^\W_]+", text.casefold())))

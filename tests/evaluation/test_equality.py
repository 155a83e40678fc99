"""Pairs of a true and a given answer, each judged as a careful person would."""

from __future__ import annotations

import threading
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spyrl.evaluation import equality
from spyrl.evaluation.equality import read_number, same, tidy
from spyrl.evaluation.units import read_unit

SAME = [
    ("18", "18.00"),
    ("18", "$18"),
    ("18", r"\$18.00"),
    ("70000", "70,000"),
    ("70000", r"\$70{,}000"),
    ("70000", r"70\,000"),
    ("70000", r"70,\!000"),
    ("70000", "70 000"),
    ("1234567", "1,234,567 dollars"),
    ("5", "5 apples"),
    ("5000000", "5 million"),
    ("0", "-0"),
    ("-0", "0"),
    ("0", "-0.00"),
    (r"\frac{14}{3}", "14/3"),
    (r"\frac{14}{3}", "4 2/3"),
    (r"\frac{14}{3}", r"4\frac{2}{3}"),
    (r"\frac{14}{3}", "4.666667"),
    (r"\frac{14}{3}", r"\dfrac{28}{6}"),
    (r"-\frac{1}{2}", r"\frac{-1}{2}"),
    (r"\frac{1}{2}", "½"),
    (r"\frac12", ".5"),
    ("[0,1)", "[0, 1)"),
    ("[0,1)", r"0 \le x < 1"),
    ("[0,1)", r"x \in [0,1)"),
    (r"(-\infty,2)", "x<2"),
    (r"(-\infty,2)\cup(3,\infty)", "(-∞, 2) ∪ (3, ∞)"),
    (r"\left(\frac{3}{5},\frac{8}{3}\right]", "(3/5, 8/3]"),
    (r"15\mbox{ cm}^2", "15"),
    (r"15\mbox{ cm}^2", "15 cm^2"),
    (r"15\mbox{ cm}^2", "15 square centimeters"),
    (r"15\mbox{ cm}^2", r"15 \text{ cm}^2"),
    (r"5 \text{ cm}", r"0.05 \text{ m}"),
    (r"5 \text{ cm}", "50 mm"),
    (r"864 \mbox{ inches}^2", "864"),
    (r"864 \mbox{ inches}^2", r"6 \text{ square feet}"),
    (r"5.4 \text{ cents}", "5.4"),
    (r"5.4 \text{ cents}", "5.4 cents"),
    (r"1 \text{ hour}", "60 minutes"),
    ("90", r"90^\circ"),
    (r"90^\circ", "90"),
    (r"90^\circ", "90 degrees"),
    (r"20\%", "20"),
    (r"20\%", r"20\%"),
    (r"20\%", "0.2"),
    ("20", r"20\%"),
    ("0.2", "20%"),
    ("1,2,3", "3, 2, 1"),
    ("1,2", "1 and 2"),
    ("1,2", "x=1 or x=2"),
    (r"\left( 3, \frac{\pi}{2} \right)", r"(3, \pi/2)"),
    (r"\left( 3, \frac{\pi}{2} \right)", "(3, π/2)"),
    (r"1 \pm \sqrt{19}", r"1-\sqrt{19}, 1+\sqrt{19}"),
    ("3", "x=3"),
    ("3", "x = 1 + 2 = 3"),
    ("x=3", "3"),
    ("3", r"n = 3 \text{ cm}"),
    (r"\text{Evelyn}", "Evelyn"),
    (r"\text{Evelyn}", r"\text{evelyn}"),
    (r"\text{Evelyn}", "Evelyn has the greatest average speed"),
    (r"\text{(C)}", "C"),
    (r"\text{(C)}", "(C)"),
    ("ellipse", "an ellipse"),
    ("p - q", "p-q"),
    ("6.7e-10", r"6.7 \times 10^{-10}"),
    ("6.7e-10", "0.00000000067"),
    (r"6.7 \times 10^{-10}", r"\frac{67}{10^{11}}"),
    (r"8.7 \times 10^{8}", "8.7e8"),
    (r"8.7 \times 10^{8}", "870000000"),
    (r"8.7 \times 10^{8}", "8.7 × 10⁸"),
    (r"8.7 \times 10^{8}", r"8.7 \times 10^{8} \text{ cm}"),
    ("025", "25"),
    ("25", "025"),
    ("2516_8", "2516"),
    ("2516_8", "2516_{8}"),
    (r"11\sqrt2", r"11 \sqrt{2}"),
    (r"11\sqrt2", "11√2"),
    (r"8\pi", "8π"),
    (r"8\pi", "8 pi"),
    (r"8\pi", r"8\pi \text{ cm}^2"),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{bmatrix} 1 \\ 2 \end{bmatrix}"),
    ("6+9i", "9i+6"),
    ("1/3", "0.333333"),
    ("5", "five"),
    ("x^2+2x+1", "(x+1)^2"),
    ("y=2x+1", "y = 1 + 2x"),
    ("11:30", "11:30"),
    ("SRAC=LRAC", "SRAC = LRAC"),
    ("E_{1},E_{2}", "E_1, E_2"),
    (r"15000 \text{ kcal m}^{-2} \text{yr}^{-1}", "15000"),
    (r"0.003^{\prime \prime}", "0.003"),
    (r"1950^\circ C", "1950"),
    (r"1950^\circ C", "1950 °C"),
    (r"4.4677 \times 10^{14} Hz", r"4.4677 \times 10^{14}"),
    (r"2\sqrt{2}", r"\sqrt{8}"),
    ("e^2", r"\exp(2)"),
    ("12", "12."),
    ("12", "**12**"),
    (r"\frac{t}{m}", r"\frac{1}{m}t"),
    ("10", "$10 per hour"),
    ("10", "10 dollars per hour"),
    (r"10\,080", "10080"),
    ("3", "about 3"),
    ("3", "≈ 3"),
    ("-3", "−3"),
    ("100", "10^2"),
    (r"30\%", "30 percent"),
    ("1:2", "1/2"),
    (r"y^{\prime}+ry-rx(t)=0", r"y^{\prime}+ry-rx(t)=0"),
    (r"40\text{ km/h}", "40 kilometers per hour"),
    (r"\$5", "5"),
    ("5", r"\text{The answer is } 5"),
    ("7", r"\text{seven}"),
    ("3.5", r"3 \frac{1}{2}"),
    ("3.5", r"3\,\frac12"),
    ("1,000", "1000"),
    (r"\text{(C)}", "C) 12"),
    (r"\text{(C)}", "(C) 12"),
    (r"\text{(C)}", r"\text{C}"),
    (r"\frac{22}{7}", r"\frac{22}{7} \approx 3.14"),
    ("3.14", r"\frac{22}{7} \approx 3.14"),
    (r"2\sqrt{2}", r"2\sqrt{2} ≈ 2.83"),
    ("8", "8 (eight)"),
    ("1.5", "1 1/2 hours"),
    ("1.5", r"1\frac{1}{2} \text{ hours}"),
    ("18", "€18"),
    ("18", "£ 18.00"),
    ("-18", "-$18"),
    (r"\text{Yes}", "Yes, because it is"),
    ("-3", "(-3)"),
    ("12", r"12 = 3 \cdot 4"),
    (r"\frac{3}{4}", r"75\%"),
    ("(2,3)", "x=2, y=3"),
    ("120", "5!"),
    ("2^{10}", "1024"),
    (r"\sqrt{50}", r"5\sqrt{2}"),
    (r"\frac{a}{b}", "a/b"),
    ("15m", "15m"),
    (r"\{1,2\}", r"\{2,1\}"),
    ("10:30", "10:30"),
    ("1,234.5", "1234.5"),
    ("3.0", "3"),
]

DIFFERENT = [
    ("70000", "7000"),
    ("5", "5x"),
    ("5", "5i"),
    ("5", "5 million"),
    ("0", "0.1"),
    (r"\frac{14}{3}", "4.67"),
    (r"\frac{1}{2}", "1/3"),
    ("[0,1)", "(0,1)"),
    (r"(-\infty,2)", r"x \le 2"),
    (r"(-\infty,2)\cup(3,\infty)", r"(-\infty,2)\cup[3,\infty)"),
    (r"15\mbox{ cm}^2", "15 cm"),
    (r"5 \text{ cm}", r"5 \text{ m}"),
    (r"5.4 \text{ cents}", "5.4 dollars"),
    (r"90^\circ", r"\frac{\pi}{2}"),
    (r"90^\circ", "9"),
    ("20", "0.2"),
    ("1,2", "1"),
    ("1", "1,2"),
    ("(1,2)", "(2,1)"),
    (r"\text{Evelyn}", "Carla"),
    (r"\text{even}", "odd"),
    (r"\text{even}", "neither even nor odd"),
    (r"\text{even}", "even or odd"),
    (r"\text{east}", "seat"),
    ("east", "seat"),
    (r"\text{(C)}", "B"),
    ("p - q", "q-p"),
    ("6.7e-10", "1e-12"),
    ("3.3e-10", r"\frac{1}{7} \times 10^{-9}"),
    (r"8.7 \times 10^{8}", r"8.7 \times 10^{9}"),
    ("2516_8", "2516_9"),
    (r"8\pi", "25.13"),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 2 \\ 1 \end{pmatrix}"),
    ("1000000", "1000001"),
    ("1/3", "0.33"),
    ("5", "six"),
    ("x^2+2x+1", "(x-1)^2"),
    ("SRAC=LRAC", "SRAC = MC"),
    ("12", ""),
    ("12", "I don't know"),
    (r"40\text{ km/h}", "40 mph"),
    ("2", "2.0001"),
    (r"\text{(C)}", "B) C"),
    ("C", "Cat"),
    (r"2\sqrt{2}", r"3 \approx 2.83"),
    (r"\text{Yes}", "No"),
    ("5", r"5 \text{ or } 6"),
    ("5", r"5 \pm 1"),
    (r"\frac{1}{m}", r"\frac{1}{m}t"),
    ("15m", "15"),
    ("x^2", "x^3"),
    (r"\{1,2\}", r"\{1,2,3\}"),
    ("(1,2)", "[1,2]"),
    ("0", r"\emptyset"),
    ("10:30", "10:45"),
]


@pytest.mark.parametrize(("truth", "answer"), SAME)
def test_the_same(truth: str, answer: str) -> None:
    assert same(truth, answer) is True


@pytest.mark.parametrize(("truth", "answer"), DIFFERENT)
def test_not_the_same(truth: str, answer: str) -> None:
    assert same(truth, answer) is False


def test_a_tower_of_powers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equality, "SECONDS", 1)
    assert same("5", "9^{9^{9^9}}") is None


def test_a_long_text_is_no_answer() -> None:
    assert same("5", "5 + " * 1000 + "5") is False


def test_off_the_main_thread() -> None:
    found: list[bool | None] = []
    thread = threading.Thread(target=lambda: found.append(same(r"\sqrt{8}", r"2\sqrt{2}")))
    thread.start()
    thread.join()
    assert found == [True]


@given(st.fractions(max_denominator=1000), st.fractions(max_denominator=1000))
def test_fractions_are_compared_exactly(one: Fraction, other: Fraction) -> None:
    def latex(value: Fraction) -> str:
        return f"{'-' if value < 0 else ''}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"

    assert same(latex(one), f"{other.numerator}/{other.denominator}") is (one == other)


@given(st.integers(-(10**12), 10**12))
def test_integers_in_every_notation(value: int) -> None:
    for written in (
        f"{value}",
        f"{value:,}",
        f"{value}.00",
        f"${value:,}$",
        f"{value:,}".replace(",", "{,}"),
        f"x = {value}",
    ):
        assert same(str(value), written) is True
    assert same(str(value), str(value + 1)) is False


@settings(max_examples=25)
@given(st.text(max_size=40))
def test_any_text_is_answered(text: str) -> None:
    assert same("5", text) in (True, False, None)
    read_number(tidy(text))


@pytest.mark.parametrize(
    ("one", "other"),
    [("km/h", "kilometers per hour"), ("cm^2", "square centimeters"), ("m s^{-1}", "m/s"), ("sq ft", "square feet")],
)
def test_spellings_of_a_unit(one: str, other: str) -> None:
    assert read_unit(one) == read_unit(other) is not None


def test_units_by_hand() -> None:
    hour, minute = read_unit("hour"), read_unit("minutes")
    assert hour is not None
    assert minute is not None
    assert hour.size / minute.size == 60
    assert hour.kinds == minute.kinds == (("time", 1),)
    assert read_unit("apples") is None

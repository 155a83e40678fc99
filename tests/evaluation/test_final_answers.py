"""Responses, and what a careful person reads as their final answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyrl.evaluation.equality import same
from spyrl.evaluation.final_answers import boxes, chosen, final_answer

RESPONSES = [
    ("18", r"He sells 9 eggs at $2. \boxed{18}", 1),
    ("18", r"\boxed{17}. Wait, no. \boxed{18}", 1),
    ("18", r"\boxed{18}. Wait, no. \boxed{17}", 0),
    ("18", r"The answer is 18.", 1),
    ("18", r"The answer is $18.", 1),
    ("18", r"The final answer is **18 dollars**.", 1),
    ("18", "**Answer:** 18", 1),
    ("18", "Answer: 18 eggs because 3 were eaten", 1),
    ("18", "#### 18", 1),
    ("18", "#### $18.00", 1),
    ("18", "so she makes 9*2=18 dollars every day", 1),
    ("18", "so she makes 18 dollars", 1),
    ("1,2", r"The roots are \boxed{1} and \boxed{2}.", 1),
    ("1,2", r"$x=\boxed{1}$ or $x=\boxed{2}$", 1),
    ("2", r"\boxed{1}, \boxed{2}, \boxed{3}", 0),
    ("3", r"\boxed{1}, \boxed{2}, \boxed{3}", 0),
    ("3", r"\boxed{3}. So \boxed{3}.", 1),
    ("(3,4)", r"\boxed{x=3}, \boxed{y=4}", 1),
    ("\\frac{1}{2}", r"The answer is $\frac{1}{2}$ cups.", 1),
    ("\\frac{1}{2}", r"\[ x = \boxed{\dfrac{1}{2}} \]", 1),
    ("5", r"\boxed{\boxed{5}}", 1),
    ("5", r"\boxed{5", 1),
    ("5", r"\boxed{}", 0),
    ("5", "", 0),
    ("5", "I don't know.", 0),
    ("-5", "which is -5.", 1),
    ("5", "which is -5.", 0),
    ("70000", "a profit of $70,000.", 1),
    ("[0,1)", r"Answer: $[0,1)$", 1),
    ("[0,1)", r"Final answer: [0, 1)", 1),
    ("\\text{Evelyn}", "The answer is Evelyn.", 1),
    ("\\text{Evelyn}", "The answer is Carla.", 0),
    ("(3,4)", "The answer is (3, 4).", 1),
    ("3", "The answer is x = 3.", 1),
    ("0.5", "The answer is 1/2", 1),
    ("5000000", "The answer is 5 million dollars.", 1),
    ("025", r"\boxed{25}", 1),
    ("18", "The answer is not 17 but 18", 0),
    ("18", "answer: \n18", 1),
    ("18", "The final answer is\n$$\n18\n$$", 1),
    ("18", "The final answer is: $\\boxed{18}$. I hope it is correct.", 1),
    ("2", r"\boxed{\text{The answer is } 2}", 1),
    ("204", r"\boxed{204\text{ minutes}}", 1),
    ("204", r"$\boxed{\mathbf{204}}$", 1),
    ("18", "Total = 9 × 2 = 18.", 1),
    ("1000", "1,000.", 1),
    ("20", "about 20%", 1),
    ("-0.5", "$-\\frac12$", 1),
]

OPTIONS = ["5", "7", "Paris", "A cat sits", "12 m/s", "\\frac{1}{2}"]
CHOICES = [
    (r"\boxed{B}", 1),
    (r"\boxed{(B)}", 1),
    (r"\boxed{\text{B}}", 1),
    (r"\boxed{b}", 1),
    (r"\boxed{B. 7}", 1),
    (r"\boxed{B) 7}", 1),
    (r"\boxed{B: 7}", 1),
    (r"\boxed{7}", 1),
    (r"\boxed{Option B}", 1),
    (r"\boxed{\text{(B) } 7}", 1),
    (r"\boxed{B. 5}", None),
    (r"\boxed{A, B}", None),
    (r"\boxed{A} or \boxed{B}", None),
    (r"\boxed{Paris}", 2),
    (r"\boxed{paris.}", 2),
    (r"\boxed{C. Paris}", 2),
    (r"\boxed{C Paris}", 2),
    (r"\boxed{London}", None),
    (r"\boxed{A cat sits}", 3),
    (r"\boxed{D. A cat sits}", 3),
    (r"\boxed{12\ \text{m/s}}", 4),
    (r"\boxed{0.5}", 5),
    (r"\boxed{Z}", None),
    ("The answer is (B).", 1),
    ("The answer is B.", 1),
    ("Answer: **B**", 1),
    ("the correct option is B", 1),
    ("So B is wrong. The answer is C.", 2),
    ("I think\n\n(C) Paris", 2),
    ("I think\nC", 2),
    ("A dog. I cannot tell.", None),
    ("The answer is Paris.", 2),
    ("The correct answer is option (C) Paris.", 2),
    ("(A) is wrong, (B) is wrong, so (C)", 2),
    ("", None),
    ("The answer is a cat sits", 3),
    ("#### C", 2),
    (r"\boxed{\mathrm{C}}", 2),
    (r"\boxed{C.}", 2),
    ("The best choice is C: Paris", 2),
    (r"\boxed{C} because it is capital", 2),
    ("Answer: C) Paris", 2),
    (r"\boxed{\text{Answer: C}}", 2),
    ("The answer is a matter of taste", None),
    ("The answer is 7.", 1),
    ("The correct answer is $\\frac{1}{2}$", 5),
]


@pytest.mark.parametrize(("truth", "response", "right"), RESPONSES)
def test_what_a_response_answers(truth: str, response: str, right: int) -> None:
    assert same(truth, final_answer(response).text) is bool(right)


@pytest.mark.parametrize(("response", "option"), CHOICES)
def test_which_option_a_response_chooses(response: str, option: int | None) -> None:
    assert chosen(response, OPTIONS)[0] == option


@pytest.mark.parametrize(
    ("response", "found"),
    [
        (r"\boxed{3}", "boxed"),
        ("#### 3", "marked"),
        ("The answer is 3.", "marked"),
        ("It makes 3.", "last"),
        ("No.", "nothing"),
    ],
)
def test_where_it_was_found(response: str, found: str) -> None:
    assert final_answer(response).found == found


def test_boxes_with_braces_in_them() -> None:
    text = r"\boxed{\{1, 2\}} and \fbox{\frac{1}{2}} and \boxed{never closed"
    assert [content for _, _, content in boxes(text)] == [r"\{1, 2\}", r"\frac{1}{2}"]
    assert boxes(r"\boxed{a \boxed{b}") == [(9, 18, "b")]


@given(st.text(alphabet=r"ab12{}\\$ ()#.:*ox,", max_size=60).map(lambda text: text.replace("ox", r"\boxed{")))
def test_any_text_is_read(text: str) -> None:
    final_answer(text)
    chosen(text, ["1", "2"])

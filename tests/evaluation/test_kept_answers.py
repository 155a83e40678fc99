"""Answers that are kept: read back as they were, whatever a text holds and wherever a kill cut the file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spyrl.errors import UsageError
from spyrl.evaluation.answers import Question, answers, append_lines, read_lines
from spyrl.policy import Completion, Request, Sampling

TEXT = "日本語\u2028\u0085 \r\n“quoted” 🙂"


class Echo:
    """Answers with the question and the seed; counts what it was asked."""

    name = "echo"

    def __init__(self) -> None:
        self.asked: list[Request] = []

    def generate(self, requests: Sequence[Request]) -> list[list[Completion]]:
        self.asked += requests
        return [
            [Completion(f"{r.messages[-1]['content']}{seed}", "stop", usage=(7, 3)) for seed in r.seeds]
            for r in requests
        ]

    def count_tokens(self, text: str) -> int:
        return len(text)

    def prompt_tokens(self, request: Request) -> int:
        return 1


def question(name: str, text: str = TEXT, choices: tuple[str, ...] = ()) -> Question:
    return Question(name, ({"role": "user", "content": text},), choices)


@pytest.mark.parametrize("lost", [*range(1, 60, 7), 200, 10_000])
def test_a_file_cut_anywhere_goes_on(tmp_path: Path, lost: int) -> None:
    path, asked = tmp_path / "a.jsonl", [question(str(number)) for number in range(4)]
    whole = answers(Echo(), asked, path, sampling=Sampling(), samples=2)
    data = path.read_bytes()
    path.write_bytes(data[: max(len(data) - lost, 0)])
    assert answers(Echo(), asked, path, sampling=Sampling(), samples=2) == whole
    again = Echo()
    assert answers(again, asked, path, sampling=Sampling(), samples=2) == whole
    assert again.asked == []
    assert {(each.prompt_tokens, each.tokens) for row in whole for each in row} == {(7, 3)}


@given(st.lists(st.dictionaries(st.text(), st.text(st.characters(exclude_categories=["Cs"])))))
def test_rows_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, str]]) -> None:
    path = tmp_path_factory.mktemp("rows") / "a.jsonl"
    assert read_lines(path, {"by": TEXT}) == []
    append_lines(path, rows)
    assert read_lines(path, {"by": TEXT}) == rows


def test_what_is_chosen_among_belongs_to_the_question(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    answers(Echo(), [question("1", choices=("A", "B"))], path, sampling=Sampling())
    with pytest.raises(UsageError, match="answers another question '1'"):
        answers(Echo(), [question("1", choices=("A", "B", "tie"))], path, sampling=Sampling())

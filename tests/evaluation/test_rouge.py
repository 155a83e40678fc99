"""ROUGE, worked out by hand and against ``rouge-score``'s own tokenizer; layouts; ``spyrl eval rouge`` end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.tokenizers import DefaultTokenizer

from scripted_policy import Scripted, play
from spyrl.cli import main
from spyrl.errors import UsageError
from spyrl.evaluation.answers import Answer
from spyrl.evaluation.results import read_evaluation
from spyrl.evaluation.rouge import Tokens, overlaps
from spyrl.evaluation.rows import Row
from spyrl.evaluation.summaries import Sample, fitted, messages_of, samples_of

ENGLISH = DefaultTokenizer(use_stemmer=True)


@example("\u023a")  # whose small letter is in another block
@given(st.text(alphabet=st.characters(max_codepoint=0x36F), max_size=80))
def test_latin_text_is_split_as_rouge_score_does(text: str) -> None:
    assert Tokens().tokenize(text) == ENGLISH.tokenize(text)


def test_english_by_example() -> None:
    text = "The committees' 3 reports (2019–20) weren't signed: Café, running!"
    assert Tokens().tokenize(text) == ENGLISH.tokenize(text)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("会议讨论了GPT-4的预算。", ["会", "议", "讨", "论", "了", "gpt", "4", "的", "预", "算"]),
        ("Новый закон, 2 статьи", ["новый", "закон", "2", "статьи"]),
    ],
)
def test_other_scripts_are_kept(text: str, tokens: list[str]) -> None:
    assert Tokens().tokenize(text) == tokens


def score(answer: str, *references: str) -> dict[str, tuple[float, float, float]]:
    sample = Sample("1", "a document", references, "report")
    (found,) = overlaps([sample], [Answer("1", 0, answer, 4, "stop")])
    assert found is not None
    return dict(found.scores)


def test_by_hand() -> None:
    # 3 of the answer's 4 words are among the reference's 6; pairs in common: "the cat"; the longest subsequence
    # in common: the cat mat.
    found = score("the cat big mat", "the cat sat on the mat")
    assert found["rouge1"] == pytest.approx((3 / 4, 3 / 6, 0.6))
    assert found["rouge2"] == pytest.approx((1 / 3, 1 / 5, 0.25))
    assert found["rougeL"] == pytest.approx((3 / 4, 3 / 6, 0.6))


def test_chinese_by_hand() -> None:
    # 4 of 4 and 4 of 6 characters.
    assert score("会议预算", "会议讨论预算")["rouge1"] == pytest.approx((1, 4 / 6, 0.8))
    assert RougeScorer(["rouge1"]).score("会议讨论预算", "会议预算")["rouge1"].fmeasure == 0  # without our tokens


def test_the_best_reference_counts_and_nothing_is_nothing() -> None:
    assert score("a cat", "a dog ran", "a cat")["rouge1"][2] == 1
    assert score("", "a dog")["rouge1"] == (0, 0, 0)


def test_a_failed_answer_is_not_scored() -> None:
    assert overlaps([Sample("1", "d", ("r",), "report")], [Answer("1", 0, "", 0, "failed", "gone")]) == [None]


def sampled(**columns: Any) -> list[Sample]:
    return samples_of([Row("file.jsonl:1", columns)])


def test_layouts() -> None:
    (govreport,) = sampled(report="R", summary="S")
    assert (govreport.document, govreport.references, govreport.kind) == ("R", ("S",), "report")
    (samsum,) = sampled(id="1", dialogue="A: hi\r\nB: ho", summary="S")
    assert (samsum.document, samsum.kind) == ("A: hi\r\nB: ho", "dialogue")
    (multi_news,) = sampled(document="One. ||||| Two.", summary="S")
    assert multi_news.document == "One.\n\nTwo."
    (longbench,) = sampled(input="Why?", context="C", answers=["S", "T"], length=3, _id="x")
    assert (longbench.document, longbench.references, longbench.query) == ("C", ("S", "T"), "Why?")
    (scrolls,) = sampled(id="1", input="Why?\nC", output="S")
    assert (scrolls.document, scrolls.query) == ("Why?\nC", "")
    (vcsum,) = sampled(context=[["大家好。", "开始。"], ["好。"]], speaker=["1", "2"], summary="摘要")
    assert vcsum.document == "1: 大家好。开始。\n2: 好。"


def test_qmsum_has_a_query_a_sample() -> None:
    meeting = {
        "topic_list": [],
        "general_query_list": [{"query": "Summarize.", "answer": "All."}],
        "specific_query_list": [{"query": "Why?", "answer": "So.", "relevant_text_span": [["0", "1"]]}],
        "meeting_transcripts": [{"speaker": "Ann", "content": "Hello."}, {"speaker": "Bo", "content": "Hm."}],
    }
    one, two = sampled(**meeting)
    assert one.document == two.document == "Ann: Hello.\nBo: Hm."
    assert (one.query, one.references, two.query, two.references) == ("Summarize.", ("All.",), "Why?", ("So.",))
    assert len(samples_of([Row("x", meeting)] * 3, limit=5)) == 5


def test_columns_by_name() -> None:
    (found,) = samples_of([Row("x", {"body": "B", "gist": "G", "text": "T"})], document="body", reference="gist")
    assert (found.document, found.references) == ("B", ("G",))


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"id": "1", "text": "T"}, "no columns of a known layout .* name two with --document"),
        ({"report": "", "summary": "S"}, "'report' holds no text"),
        ({"report": "R", "summary": None}, "'summary' holds no reference"),
    ],
)
def test_rows_that_cannot_be_read(columns: dict[str, Any], error: str) -> None:
    with pytest.raises(UsageError, match=f"file.jsonl:1: .*{error}"):
        sampled(**columns)


def test_what_is_asked() -> None:
    from spyrl.tasks.summarization import TASK

    report, dialogue = Sample("1", "D", ("An S",), "report"), Sample("1", "D", ("An S",), "dialogue", "Who won?")
    assert messages_of(report, "D", None)[0]["content"] == f"<document>\nD\n</document>\n\n{TASK.instructions}"
    assert "Who won?" in messages_of(dialogue, "D", None)[0]["content"]
    assert messages_of(report, "D", "Be short.")[0]["content"].endswith("\n\nBe short.")
    assert "language of the meeting" in messages_of(Sample("1", "会", ("议",), "meeting"), "会", None)[0]["content"]


def test_long_documents_are_cut_at_a_sentence() -> None:
    sample = Sample("1", "One two three. Four five six. Seven eight.", ("S",), "report")

    def count(messages: Any) -> int:
        return len(messages[0]["content"].split())

    whole = count(messages_of(sample, sample.document, "Go."))
    assert fitted(sample, "Go.", whole, count) == (messages_of(sample, sample.document, "Go."), False)
    assert fitted(sample, "Go.", whole - 1, count) == (
        messages_of(sample, "One two three. Four five six.", "Go."),
        True,
    )
    with pytest.raises(UsageError, match="holds nothing of document 1"):
        fitted(sample, "Go.", 2, count)


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    path = tmp_path / "reports.jsonl"
    rows = [{"report": f"Report {n} is long.", "summary": f"number {n} says that all is well"} for n in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def summarize(words: str) -> Any:
    return lambda prompt, sample: f"number {prompt.split()[2]} {words}"


def evaluate(reports: Path, folder: Path, *words: str) -> int:
    return main(["eval", "rouge", "trained", "--data", str(reports), "--to", str(folder), *words])


def test_planted_summaries(reports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained, base = Scripted("trained", summarize("says that all is well")), Scripted("base", summarize("says so much"))
    play(monkeypatch, trained=trained, base=base)
    assert evaluate(reports, tmp_path / "out", "--against", "base") == 0
    evaluation = read_evaluation(tmp_path / "out")
    scores = {score.metric: score for score in evaluation.scores}
    # The base: 3 of its 5 words, 3 of the reference's 7.
    assert scores["rouge1"].value == 100
    assert scores["rouge1"].base == pytest.approx(100 * 2 * 3 / (5 + 7))
    lengths = next(sheet for sheet in evaluation.sheets if sheet.title == "Length")
    assert [row[:2] for row in lengths.rows] == [("trained", "7.0"), ("base", "5.0"), ("references", "7.0")]
    assert [row[3] for row in lengths.rows] == ["1.00", "0.71", "1.00"]


def test_stopped_and_resumed_it_says_the_same(reports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say = summarize("says that much is well")
    play(monkeypatch, trained=Scripted("trained", say))
    assert evaluate(reports, tmp_path / "whole") == 0
    play(monkeypatch, trained=Scripted("trained", say, stop_at=3))
    assert evaluate(reports, tmp_path / "parts") == 130
    again = Scripted("trained", say)
    play(monkeypatch, trained=again)
    assert evaluate(reports, tmp_path / "parts") == 0
    assert 0 < len(again.asked) < 40
    for name in ("results.csv", "answers.jsonl", "scores.jsonl"):
        assert (tmp_path / "parts" / name).read_text() == (tmp_path / "whole" / name).read_text()


def test_a_corpus_without_references_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "reports.jsonl"
    path.write_text('{"id": "1", "text": "A report."}\n', encoding="utf-8")
    assert evaluate(path, tmp_path / "out") == 2
    assert "--reference" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_real_model(reports: Path, tmp_path: Path, tiny_model: Path) -> None:
    words = ["--data", str(reports), "--limit", "3", "--max-new-tokens", "6", "--max-prompt-tokens", "500"]
    assert main(["eval", "rouge", str(tiny_model), *words, "--device", "cpu", "--to", str(tmp_path / "out")]) == 0
    assert len((tmp_path / "out" / "answers.jsonl").read_text().splitlines()) == 4

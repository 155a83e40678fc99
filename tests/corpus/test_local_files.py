from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from spyrl.corpus import Corpus, CorpusSettings, Cursor, open_corpus
from spyrl.errors import UsageError
from spyrl.game.deal import Document

ONE = "The first document is a short one."
TWO = "Le deuxième est à peine plus long, “naturellement”."
ROWS = [{"id": "one", "text": ONE}, {"text": TWO}]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def opened(path: str | Path, **settings: object) -> Corpus:
    chosen = CorpusSettings(path=str(path), **{"shuffle": False, "min_words": 1, **settings})  # type: ignore[arg-type]
    return open_corpus(chosen, seed=0, count_tokens=lambda text: len(text.split()), max_tokens=1000)


def documents(path: str | Path, **settings: object) -> list[Document]:
    corpus = opened(path, **settings)
    assert corpus.size is not None
    return corpus.take(Cursor(), corpus.size - sum(v for k, v in corpus.skipped.items() if k != "empty"))[0]


def refusal(path: str | Path, **settings: object) -> str:
    with pytest.raises(UsageError) as caught:
        opened(path, **settings)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    return message


def json_lines(*rows: object) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def a_table(delimiter: str) -> str:
    return (
        delimiter.join(["id", "text"])
        + "\r\n"
        + "".join(
            delimiter.join(['"' + row.get("id", "").replace('"', '""') + '"', '"' + row["text"] + '"']) + "\r\n"
            for row in ROWS
        )
    )


@pytest.mark.parametrize(
    ("name", "content", "second"),
    [
        ("a.jsonl", json_lines(*ROWS), "a.jsonl:2"),
        ("a.ndjson", "\n" + json_lines(*ROWS).replace("\n", "\r\n\r\n"), "a.ndjson:4"),
        ("a.json", json.dumps(ROWS, indent=1), "a.json:2"),
        ("a.json", json.dumps({"version": 1, "data": ROWS}), "a.json:2"),
        ("a.csv", a_table(","), "a.csv:3"),
        ("a.tsv", a_table("\t"), "a.tsv:3"),
    ],
)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_every_text_format_with_and_without_a_byte_order_mark(name: str, content: str, second: str, mark: str) -> None:
    Path(name).write_bytes((mark + content).encode())
    assert documents(name) == [Document("one", ONE), Document(second, TWO)]


def zst(data: bytes) -> bytes:
    with pa.output_stream("packing", compression="zstd") as stream:
        stream.write(data)
    return Path("packing").read_bytes()


@pytest.mark.parametrize(
    ("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress), (".zst", zst)]
)
def test_packed_files(suffix: str, pack: Callable[[bytes], bytes]) -> None:
    Path(f"a.JSONL{suffix}").write_bytes(pack(json_lines(ROWS[0]).encode()) + pack(json_lines(ROWS[1]).encode()))
    assert documents(f"a.JSONL{suffix}") == [Document("one", ONE), Document(f"a.JSONL{suffix}:2", TWO)]
    Path(f"cut.jsonl{suffix}").write_bytes(pack(json_lines(*ROWS).encode())[:-6])
    assert str(Path(f"cut.jsonl{suffix}").absolute()) in refusal(f"cut.jsonl{suffix}")
    Path(f"no.jsonl{suffix}").write_bytes(b"this was never packed at all")
    assert "cannot be read" in refusal(f"no.jsonl{suffix}")


def test_parquet() -> None:
    table = pa.table(
        {"n": [[1], [2], [3]], "id": [7, None, 9], "text": [ONE, TWO, None], "title": ["A a", "B b", "C c"]}
    )
    parquet.write_table(table, "a.parquet", row_group_size=1)
    assert documents("a.parquet") == [Document("7", ONE), Document("a.parquet:2", TWO)]
    message = refusal("a.parquet", column="titel")
    assert "a.parquet, row 1: no column 'titel'" in message
    assert "n, id, text, title" in message
    assert "set corpus.column=title" in message
    assert "row 1: column 'n' holds a list, not a string" in refusal("a.parquet", column="n")
    Path("b.parquet").write_bytes(b"PAR1 and nothing else")
    assert str(Path("b.parquet").absolute()) in refusal("b.parquet")


def test_text_files_are_one_document_each() -> None:
    Path("a.txt").write_bytes(b"\xef\xbb\xbfA line here.\r\nAnd one more.\r\n")
    assert documents("a.txt", column="anything") == [Document("a.txt", "A line here.\nAnd one more.\n")]


def test_a_folder_in_sorted_order_without_what_is_hidden_or_unknown() -> None:
    for name in ("b/z.md", "a.txt", "b/a.md", ".git/c.md", "b/.d.md", "e.docx"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(f"This is {name} here.")
    Path("b/c.jsonl").write_text(json_lines({"text": ONE}))
    assert [each.id for each in documents(".")] == ["a.txt", "b/a.md", "b/c.jsonl:1", "b/z.md"]
    assert [each.id for each in documents(Path("b").absolute(), limit=2)] == ["a.md", "c.jsonl:1"]


def test_bare_strings_are_documents_of_the_default_column() -> None:
    Path("a.jsonl").write_text(json_lines(ONE, TWO))
    Path("a.json").write_text(json.dumps([ONE, TWO]))
    assert documents("a.jsonl") == [Document("a.jsonl:1", ONE), Document("a.jsonl:2", TWO)]
    assert documents("a.json") == [Document("a.json:1", ONE), Document("a.json:2", TWO)]
    message = refusal("a.jsonl", column="story")
    assert "a.jsonl:1 holds a string" in message
    assert "corpus.column=text" in message


def test_ids() -> None:
    Path("a.jsonl").write_text(json_lines(*({"id": name, "text": ONE} for name in ("x", 5, True, 1.5, " ", None))))
    assert [each.id for each in documents("a.jsonl")] == ["x", "5", *(f"a.jsonl:{line}" for line in range(3, 7))]


def test_null_and_blank_rows_are_passed_over_and_counted() -> None:
    Path("a.jsonl").write_text(json_lines({"text": None}, {"text": ONE}, {"text": " \n"}, None, {"text": ""}) + "\n\n")
    corpus = opened("a.jsonl")
    assert corpus.size == 1
    assert corpus.description == "1 document from a.jsonl"
    for _ in range(3):
        assert corpus.take(Cursor(), 2)[0] == [Document("a.jsonl:2", ONE)] * 2
        assert corpus.skipped == {"empty": 4}


def test_limit_counts_rows_and_stops_reading() -> None:
    Path("a.jsonl").write_text(json_lines({"text": None}, {"text": ONE}, {"text": TWO}) + "never read")
    assert documents("a.jsonl", limit=2) == [Document("a.jsonl:2", ONE)]


def test_half_a_surrogate_pair_is_replaced() -> None:
    Path("a.jsonl").write_text('{"text": "It is \\ud83d broken here."}')
    assert documents("a.jsonl")[0].text == "It is \ufffd broken here."


def test_unusual_line_separators_stay_in_a_document() -> None:
    Path("a.jsonl").write_bytes(json_lines({"text": "a\u2028b\u0085c d\x0ce"}, {"text": TWO}).encode())
    assert [each.id for each in documents("a.jsonl")] == ["a.jsonl:1", "a.jsonl:2"]


def test_long_and_many_line_fields_of_a_table() -> None:
    long = "A word, " * 40_000
    Path("a.csv").write_text(f'text,n\n"one\ntwo\nthree",1\n\n"{long}",2\n')
    limit = csv.field_size_limit()
    corpus = opened("a.csv", max_tokens=1000, limit=2)
    found = corpus.take(Cursor(), 2)[0]
    assert [each.id for each in found] == ["a.csv:2", "a.csv:6"]
    assert found[1].text == ("A word, " * 500).rstrip()
    assert csv.field_size_limit() == limit


def test_a_missing_file_and_its_near_names(tmp_path: Path) -> None:
    for name in ("stories.jsonl", "story.jsonl", "else.csv"):
        Path(name).write_text("")
    message = refusal("./storys.jsonl")
    assert f"there is no file or folder {tmp_path / 'storys.jsonl'}" in message
    assert "stories.jsonl" in message
    assert "story.jsonl" in message
    assert "else.csv" not in message
    assert str(tmp_path / "no/where.jsonl") in refusal("no/where.jsonl")
    assert str(tmp_path / "folder") in refusal("./folder")
    assert str(Path("~/not-here-at-all").expanduser()) in refusal("~/not-here-at-all")


def test_a_name_that_is_neither_a_file_nor_a_hub_id(tmp_path: Path) -> None:
    assert str(tmp_path / "a/b/c") in refusal("a/b/c")
    assert "corpus.path=bundled:writing" in refusal("writing")
    assert "corpus.path=bundled:summarization" in refusal("bundle:summarisation")


def test_an_unknown_sample() -> None:
    message = refusal("bundled:maths")
    assert "bundled:maths" in message
    assert "bundled:writing, bundled:math, bundled:summarization" in message


@pytest.mark.parametrize("name", ["a.docx", "a", "a.parquet.gz", "a.gz", "a.tar.gz"])
def test_an_unknown_suffix(name: str) -> None:
    Path(name).write_text(ONE)
    message = refusal(f"./{name}")
    assert str(Path(name).absolute()) in message
    for suffix in (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".txt", ".md", ".parquet", ".gz", ".zst"):
        assert suffix in message


def test_a_folder_without_documents() -> None:
    Path("empty").mkdir()
    assert str(Path("empty").absolute()) in refusal("empty")


@pytest.mark.parametrize(
    ("name", "content"), [("a.jsonl", "\n\n"), ("a.json", "[]"), ("a.json", ""), ("a.csv", "id,text\n")]
)
def test_an_empty_corpus(name: str, content: str) -> None:
    Path(name).write_text(content)
    assert f"{Path(name).absolute()} is empty" in refusal(name)


def test_a_missing_column() -> None:
    Path("a.jsonl").write_text("\n" + json_lines({"id": "x", "domain": "Prose", "prompt": "Write a story.", "n": 3}))
    message = refusal("a.jsonl")
    assert f"{Path('a.jsonl').absolute()}:2: no column 'text'" in message
    assert "id, domain, prompt, n" in message
    assert "set corpus.column=prompt" in message
    assert "set corpus.column=prompt" in refusal("a.jsonl", column="Promt")
    Path("b.jsonl").write_text(json_lines({"story": "Two words.", "review": "Two words."}))
    assert "set corpus.column=..." in refusal("b.jsonl")
    Path("c.jsonl").write_text(json_lines(ROWS[0], {"id": 3}))
    assert "c.jsonl:2: no column 'text'" in refusal("c.jsonl")
    Path("d.jsonl").write_text(json_lines({f"{'x' * 100}{number}": "One" for number in range(100)}))
    assert len(refusal("d.jsonl")) < 1500
    Path("e.csv").write_text("prompt,answer\nWrite a story.,No\n")
    assert "set corpus.column=prompt" in refusal("e.csv")


@pytest.mark.parametrize(
    ("value", "kind"), [(3, "a number"), (["a b"], "a list"), ({"a": "b"}, "an object"), (True, "a truth value")]
)
def test_a_column_that_holds_no_string(value: object, kind: str) -> None:
    Path("a.jsonl").write_text(json_lines(ROWS[0], {"text": value, "story": "It is this."}))
    message = refusal("a.jsonl")
    assert f"{Path('a.jsonl').absolute()}:2: column 'text' holds {kind}, not a string" in message
    assert "set corpus.column=story" in message


def test_a_row_that_is_no_object() -> None:
    Path("a.jsonl").write_text(json_lines(ROWS[0], [1, 2]))
    assert f"{Path('a.jsonl').absolute()}:2 holds a list, not an object" in refusal("a.jsonl")


def test_malformed_json() -> None:
    Path("a.jsonl").write_text(json_lines(ROWS[0]) + '{"text": "no end\n')
    assert f"{Path('a.jsonl').absolute()}:2: not valid JSON: Invalid control character at" in refusal("a.jsonl")
    Path("b.jsonl").write_text(json_lines(ROWS[0]) + "\n{'text': 1}\n")
    assert re.search(r"b\.jsonl:3: .*property name enclosed in double quotes \(column 2\)", refusal("b.jsonl"))
    Path("c.json").write_text('[\n {"text": "a b"},\n {"text" "a b"}\n]')
    assert "c.json:3: not valid JSON: Expecting ':' delimiter" in refusal("c.json")
    Path("d.json").write_text(json_lines(*ROWS))
    assert re.search(r"d\.json:2: .*Extra data.*\.jsonl", refusal("d.json"))
    Path("e.jsonl").write_text("[" * 100_000)
    assert "e.jsonl:1" in refusal("e.jsonl")
    Path("f.jsonl").write_text('{"n": ' + "1" * 10_000 + "}")
    assert "f.jsonl:1" in refusal("f.jsonl")


def test_json_of_another_shape() -> None:
    Path("a.json").write_text(json.dumps({"train": ROWS, "test": ROWS, "n": 1}))
    assert "train, test, n" in refusal("a.json")
    Path("b.json").write_text("3")
    assert f"{Path('b.json').absolute()} holds a number" in refusal("b.json")


def test_bytes_that_are_no_utf_8() -> None:
    for name in ("a.jsonl", "a.txt", "a.csv", "a.json"):
        Path(name).write_bytes(b"{}\n" + "caf\u00e9".encode("latin-1"))
        if name == "a.jsonl":
            Path(name).write_bytes(json_lines(ROWS[0]).encode() + b'{"text": "caf\xe9"}')
        message = refusal(name)
        assert f"{Path(name).absolute()}:2: byte 0xe9 is not UTF-8" in message
    Path("b.jsonl").write_bytes(json_lines(*ROWS).encode("utf-16"))
    assert "b.jsonl:1: byte 0xff" in refusal("b.jsonl")


def test_a_table_that_would_lose_documents() -> None:
    Path("a.csv").write_text("text,n\nOne, two and three,1\n")
    assert re.search(r"a\.csv:2: 3 fields .* 2 columns", refusal("a.csv"))
    Path("b.csv").write_text('text,n\na b,1\n"never closed,2\nmore,3\n')
    assert "b.csv:3: not a readable table row" in refusal("b.csv")


def test_a_file_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a.jsonl").write_text(json_lines(*ROWS))

    def refuse(*_: object) -> Iterator[object]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert f"{Path('a.jsonl').absolute()} cannot be read: Permission denied" in refusal("a.jsonl")


def test_all_documents_too_short() -> None:
    Path("a.jsonl").write_text(json_lines({"text": "One two."}, {"text": None}, *ROWS))
    message = refusal("a.jsonl", min_words=12, min_tokens=3)
    assert "a.jsonl" in message
    assert "4 rows read" in message
    assert "3 too few words" in message
    assert "1 empty" in message
    assert "corpus.min_words=12" in message
    assert "corpus.min_tokens=3" in message
    assert "3 too few tokens" in refusal("a.jsonl", min_tokens=500)

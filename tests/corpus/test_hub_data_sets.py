from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import huggingface_hub.errors
import pytest
from datasets.exceptions import DataFilesNotFoundError, DatasetNotFoundError

from spyrl.corpus import Corpus, CorpusSettings, Cursor, open_corpus
from spyrl.corpus import hub as module
from spyrl.errors import SpyRLError, UsageError
from spyrl.game.deal import Document

ROWS = [{"id": number, "text": f"This is row {number}.", "other": [number]} for number in range(40)]
BLOCK = 16


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    assert module.BLOCK_ROWS == 1024  # saved cursors count in these blocks
    monkeypatch.setattr(module, "BLOCK_ROWS", BLOCK)


class Hub:
    """What stands in for the Hub: a real streamed data set that counts the rows read from it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.read: list[int] = []
        self.rows: list[dict[str, Any]] = ROWS
        self.fails_at: int | None = None

    def load_dataset(self, path: str, **options: Any) -> Any:
        self.calls.append((path, options))
        features = datasets.Dataset.from_list(self.rows).features
        return datasets.IterableDataset.from_generator(self._generate, features=features)

    def _generate(self) -> Any:
        for number, row in enumerate(self.rows):
            if number == self.fails_at:
                raise ConnectionError("Connection reset by peer")
            self.read.append(number)
            yield row


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub()
    monkeypatch.setattr(datasets, "load_dataset", hub.load_dataset)
    return hub


def opened(path: str = "owner/name", **settings: object) -> Corpus:
    chosen = CorpusSettings(path=path, **{"shuffle": False, "min_words": 2, **settings})  # type: ignore[arg-type]
    return open_corpus(chosen, seed=0, count_tokens=len, max_tokens=1000)


def refusal(path: str = "owner/name", **settings: object) -> str:
    with pytest.raises(UsageError) as caught:
        opened(path, **settings)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    return message


def test_how_the_data_set_is_asked_for(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = opened()
    assert hub.calls == [("owner/name", {"name": None, "split": "train", "streaming": True, "token": None})]
    assert corpus.description == "streaming owner/name (train)"
    assert corpus.size is None
    monkeypatch.setenv("HF_TOKEN", "a-token")
    for path in ("hf://owner/name", "hf://datasets/owner/name"):
        opened(path, subset="3", split="test")
        assert hub.calls[-1] == ("owner/name", {"name": "3", "split": "test", "streaming": True, "token": "a-token"})
    assert "hf://owner/name" in refusal("hf://owner/name/data/file.jsonl")


def test_rows_are_read_block_by_block(hub: Hub) -> None:
    corpus = opened()
    taken, cursor = corpus.take(Cursor(), BLOCK)
    assert hub.read == list(range(BLOCK))
    assert taken[3] == Document("3", "This is row 3.")
    taken, cursor = corpus.take(cursor, 40 - BLOCK)
    assert [int(document.id) for document in taken] == list(range(BLOCK, 40))
    assert hub.read == list(range(40)), "the stream was opened again"
    taken, cursor = corpus.take(cursor, 2)
    assert [document.id for document in taken] == ["0", "1"]
    assert cursor == Cursor(1, 0, 2)


def test_resuming_skips_to_the_block(hub: Hub) -> None:
    expected = opened(shuffle=True).take(Cursor(1, 1, 10), 30)
    assert opened(shuffle=True).take(Cursor(1, 1, 10), 30) == expected
    assert opened(shuffle=True).take(Cursor(1, 9, 0), 5) == opened(shuffle=True).take(Cursor(2, 0, 0), 5)


def test_shuffling_is_within_a_block(hub: Hub) -> None:
    taken, _ = opened(shuffle=True).take(Cursor(), 40)
    ids = [int(document.id) for document in taken]
    assert ids != sorted(ids)
    assert sorted(ids) == list(range(40))
    assert sorted(ids[:BLOCK]) == list(range(BLOCK))


def test_limit_stops_reading(hub: Hub) -> None:
    corpus = opened(limit=20)
    taken, cursor = corpus.take(Cursor(), 21)
    assert max(hub.read) == 19
    assert (taken[-1].id, cursor) == ("0", Cursor(1, 0, 1))


def test_a_data_set_that_ends_with_a_block(hub: Hub) -> None:
    hub.rows = ROWS[:BLOCK]
    taken, cursor = opened().take(Cursor(), 2 * BLOCK + 1)
    assert [document.id for document in taken] == [str(number) for number in range(BLOCK)] * 2 + ["0"]
    assert cursor == Cursor(2, 0, 1)


def test_a_row_without_an_id_is_named_by_its_number(hub: Hub) -> None:
    hub.rows = [{"text": None}, {"text": "Two words."}]
    corpus = opened()
    assert corpus.take(Cursor(), 1)[0] == [Document("owner/name:2", "Two words.")]
    assert corpus.skipped == {"empty": 1}


def test_a_data_set_whose_columns_are_not_known_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = datasets.IterableDataset.from_generator(lambda: iter(ROWS))
    assert unknown.column_names is None
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: unknown)
    assert opened().take(Cursor(), 1)[0] == [Document("0", "This is row 0.")]


def test_a_missing_column_and_one_of_another_kind(hub: Hub) -> None:
    message = refusal(column="texts")
    assert "owner/name, row 1: no column 'texts'" in message
    assert "id, text, other" in message
    assert "set corpus.column=text" in message
    assert "owner/name, row 1: column 'other' holds a list" in refusal(column="other")


def test_an_empty_split_and_one_of_short_documents(hub: Hub) -> None:
    assert "16 rows read" in refusal(min_words=100)
    hub.rows = []
    with pytest.raises(UsageError, match="owner/name is empty"):
        opened()


def test_a_connection_lost_on_the_way(hub: Hub) -> None:
    hub.fails_at = 30
    corpus = opened()
    with pytest.raises(SpyRLError, match="owner/name") as caught:
        corpus.take(Cursor(), 25)
    assert not isinstance(caught.value, UsageError)
    hub.fails_at = None
    assert corpus.take(Cursor(0, 1, 0), 1)[0][0].id == str(BLOCK)
    hub.fails_at = 5
    assert "did not answer" in refusal()


def test_datasets_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "pip install 'spyrl[hub]'" in refusal()


RESPONSE: Any = SimpleNamespace(headers={}, request=None)


@pytest.mark.parametrize(
    ("error", "needed"),
    [
        (DatasetNotFoundError("Dataset 'owner/name' is a gated dataset on the Hub. Ask for access."), "is gated"),
        (huggingface_hub.errors.GatedRepoError("403 Client Error.", response=RESPONSE), "is gated"),
        (huggingface_hub.errors.RepositoryNotFoundError("404 Client Error.", response=RESPONSE), "has no data set"),
        (DatasetNotFoundError("Dataset 'owner/name' doesn't exist on the Hub."), "has no data set"),
        (ConnectionError("Couldn't reach 'owner/name' on the Hub (LocalEntryNotFoundError)"), "did not answer"),
        (huggingface_hub.errors.OfflineModeIsEnabled("Offline mode is enabled."), "did not answer"),
        (TimeoutError(), "did not answer"),
        (DataFilesNotFoundError("No (supported) data files found in owner/name"), "No (supported) data files"),
        (ValueError("Bad split: train. Available splits: ['test']"), "no such corpus.split"),
        (ValueError("Config name is missing.\nPlease pick one among: ['3', '4']"), "another corpus.subset"),
        (ValueError("BuilderConfig '5' not found. Available: ['3', '4']"), "another corpus.subset"),
        (RuntimeError("Dataset scripts are no longer supported, but found name.py"), "refs/convert/parquet"),
        (KeyError("surprise"), "KeyError"),
    ],
)
def test_what_the_hub_refuses(error: Exception, needed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(datasets, "load_dataset", fail)
    message = refusal()
    assert needed in message
    assert "owner/name" in message
    for word in ("name", "HF_TOKEN", "network"):
        assert word in message


def test_a_misspelt_local_folder_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: object, **__: object) -> None:
        raise DatasetNotFoundError("Dataset 'data/story' doesn't exist on the Hub or cannot be accessed.")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    (tmp_path / "data" / "stories").mkdir(parents=True)
    message = refusal("data/story")
    assert str(tmp_path / "data" / "story") in message
    assert "stories" in message


def test_a_local_folder_comes_before_the_hub(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "owner").mkdir()
    (tmp_path / "owner" / "name").mkdir()
    (tmp_path / "owner" / "name" / "a.txt").write_text("Two words.")
    assert opened().description == "1 document from owner/name"
    assert hub.calls == []

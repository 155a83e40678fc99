"""Where documents come from: Hub data sets, local files, the bundled samples."""

from spyrl.corpus.corpus import BUNDLED, Corpus, CorpusSettings, Cursor, hub_data_set, open_corpus
from spyrl.corpus.cutting import fit
from spyrl.corpus.reading import MissingColumnError

__all__ = ["BUNDLED", "Corpus", "CorpusSettings", "Cursor", "MissingColumnError", "fit", "hub_data_set", "open_corpus"]

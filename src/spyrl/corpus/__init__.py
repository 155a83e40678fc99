"""Where documents come from: Hub data sets, local files, the bundled samples."""

from spyrl.corpus.corpus import BUNDLED, Corpus, CorpusSettings, Cursor, hub_data_set, open_corpus
from spyrl.corpus.cutting import fit

__all__ = ["BUNDLED", "Corpus", "CorpusSettings", "Cursor", "fit", "hub_data_set", "open_corpus"]

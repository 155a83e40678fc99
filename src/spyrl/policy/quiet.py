"""Other libraries keep off the display."""

from __future__ import annotations

import warnings


def quiet_libraries() -> None:
    """Keep other libraries' progress bars and advice off the display."""
    from huggingface_hub.utils.tqdm import disable_progress_bars
    from transformers.utils import logging

    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers|peft")
    disable_progress_bars()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]

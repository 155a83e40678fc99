"""Summarization: one paragraph for a long report (published summarization runs)."""

from spyrl.tasks.text import TextTask

TASK = TextTask(
    name="summarization",
    source="report",
    product="summary",
    instructions=(
        "Summarize this report in one paragraph. Say what it is about, what was found or decided, why, and what "
        "follows from it, with the names and figures that matter, each where it belongs. Add nothing that the "
        "report does not say, and give each part of the report the weight it has there."
    ),
    criteria=(
        "a main finding or a whole part of the report that a summary passes over; names, dates or figures that are "
        "missing, wrong or attached to the wrong thing; statements the report does not make; general phrases where "
        "the report is specific; weight given to side issues."
    ),
    # FACTS: 20 % of the words masked, no cut by words.
    defaults={
        "corpus": {"path": "bundled:summarization", "column": "text", "max_words": None},
        "game": {"degradation": {"kind": "mask", "fraction": 0.2}},
    },
)

"""Mathematics: design a problem from a document and solve it (published 4B and 8B maths runs)."""

from spyrl.tasks.text import TextTask

TASK = TextTask(
    name="math",
    source="document",
    product="problem with its solution",
    instructions=(
        "Design one mathematics problem out of what this document says, and solve it. State the problem completely, "
        "with every definition and number it needs, so that somebody who has never seen the document can solve and "
        "check it. Make it require several steps and a result, method or quantity of the document. Then solve it "
        "step by step, without a gap, and end with the final answer."
    ),
    criteria=(
        "a problem that the document does not support or only touches at its surface; definitions, formulas or "
        "numbers that differ from the document's; a step that does not follow, an arithmetic slip, an answer that "
        "is wrong or belongs to another question; an unstated assumption; an easy or generic problem where the "
        "document offered something particular."
    ),
    # FACTS: 40 % of the words masked; documents cut to 1,000 words.
    defaults={
        "corpus": {"path": "bundled:math", "column": "text", "max_words": 1000},
        "game": {"degradation": {"kind": "mask", "fraction": 0.4}},
    },
)

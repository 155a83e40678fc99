"""Creative writing: a short story from a writing prompt (published 4B writing run)."""

from spyrl.tasks.text import TextTask

TASK = TextTask(
    name="writing",
    source="writing prompt",
    product="short story",
    instructions=(
        "Write a short story from this writing prompt. Give it people who want something, a turn that the reader "
        "does not see coming, and an ending that pays off what the beginning set up. Every detail that the prompt "
        "asks for must have its place and its consequences in the story."
    ),
    criteria=(
        "a character, object, place, rule or event of the prompt that a story leaves out, gets wrong or keeps vague "
        "where the others are specific; invented material where the prompt is definite; a plot that does not need "
        "what the prompt gives; slack or generic writing where knowing the prompt would have given something to say."
    ),
    # FACTS: 20 % of the words masked; prompts cut to 128 words.
    defaults={
        "corpus": {"path": "bundled:writing", "column": "text", "max_words": 128},
        "game": {"degradation": {"kind": "mask", "fraction": 0.2}},
    },
)

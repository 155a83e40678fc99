"""TRL's GRPO loss on trajectories of ours: its own trainer's ``compute_loss``, micro-batch by micro-batch."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.texts import byte_tokenizer
from spyrl.errors import UsageError
from spyrl.policy.attention import NAME
from spyrl.training.trajectory import Trajectory


def trl_update(model: Any, trajectories: Sequence[Trajectory], tokens: int) -> Callable[[], None]:
    """A forward and backward pass of TRL over all trajectories, at most ``tokens`` (but one row) at a time.

    Prompts are padded on the left and completions on the right, as its trainer does.
    """
    try:
        from datasets import Dataset
        from trl import GRPOConfig, GRPOTrainer
    except ImportError:
        raise UsageError("measuring against TRL needs it: pip install 'trl<2', or --against padded") from None
    settings = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=2,
        num_generations=2,
        loss_type="grpo",
        beta=0.0,
        gradient_checkpointing=False,
        report_to=[],
        logging_strategy="no",
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=settings,
        train_dataset=Dataset.from_list([{"prompt": "?"}] * 2),
        processing_class=byte_tokenizer(),
    )
    trainer.current_gradient_accumulation_steps = 1
    longest = max(len(each.prompt_ids) + len(each.token_ids) for each in trajectories)
    rows = max(tokens // longest, 1)
    parts = [_inputs(trajectories[at : at + rows]) for at in range(0, len(trajectories), rows)]

    def work() -> None:
        model.set_attn_implementation("sdpa")
        for inputs in parts:
            (trainer.compute_loss(model, inputs) * len(inputs["advantages"])).backward()
        model.set_attn_implementation(NAME)

    return work


def _inputs(trajectories: Sequence[Trajectory]) -> dict[str, torch.Tensor]:
    asked = max(len(each.prompt_ids) for each in trajectories)
    written = max(len(each.token_ids) for each in trajectories)
    prompts, prompt_mask = torch.zeros(2, len(trajectories), asked, dtype=torch.long)
    completions, completion_mask = torch.zeros(2, len(trajectories), written, dtype=torch.long)
    for at, each in enumerate(trajectories):
        prompts[at, asked - len(each.prompt_ids) :] = torch.tensor(each.prompt_ids)
        prompt_mask[at, asked - len(each.prompt_ids) :] = 1
        completions[at, : len(each.token_ids)] = torch.tensor(each.token_ids)
        completion_mask[at, : len(each.token_ids)] = 1
    return {
        "prompt_ids": prompts,
        "prompt_mask": prompt_mask,
        "completion_ids": completions,
        "completion_mask": completion_mask,
        "advantages": torch.tensor([each.advantage for each in trajectories]),
    }

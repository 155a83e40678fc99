"""How a seat is played: one prompt, one answer, asked for in this process."""

from __future__ import annotations

import openai
import verifiers.v1 as vf
from verifiers.v1.dialects.chat import message_to_wire


class TurnData(vf.TaskData):
    """One sample of one seat. ``seed`` names it in the game (`spyrl.game.named_seed`)."""

    seed: int
    sampling: vf.SamplingConfig
    """As the game's settings have it. What the run or the seat itself sets comes first."""


class TurnTask(vf.Task[TurnData]):
    """One turn. It is scored with its game, not alone."""


class SpyrlHarness(vf.Harness[vf.HarnessConfig]):
    """Sends the turn's prompt as one chat completion; no program is started and nothing can be executed."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """Ask once; the trace records the answer. A failed call raises, after the client's own retries."""
        _, messages = self.resolve_prompt(data)
        sampling = data.sampling.model_dump(exclude_none=True) if isinstance(data, TurnData) else {}
        async with openai.AsyncOpenAI(base_url=endpoint, api_key=secret, timeout=None) as client:
            await client.chat.completions.create(
                model=ctx.model, messages=[message_to_wire(message) for message in messages], **sampling
            )
        return vf.ProgramResult(0, "", "")

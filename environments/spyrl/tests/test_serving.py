"""The environment behind verifiers' own server, as engines that train run it."""

from __future__ import annotations

import asyncio
import math

import pytest
import verifiers.v1 as vf
from verifiers.v1.serve.client import EnvClient
from verifiers.v1.serve.server import EnvServer

from conftest import Server
from spyrl_environment.replays import replays, typed

TASKSET = {
    "id": "spyrl-environment",
    "preset": "writing-smollm2",
    "settings": ["game.detectors.answer=reasoned"],
    "games": 3,
}


async def over_the_wire(config: vf.EnvConfig, url: str) -> list[vf.WireEpisode]:
    server = EnvServer(config, address="tcp://127.0.0.1:0")
    running = asyncio.create_task(server.run())
    client = EnvClient(server.address)
    endpoint = vf.EvalClientConfig(base_url=url, api_key_var="NO_KEY")
    tasks = [task.data.model_dump(mode="json") for task in vf.load_environment(config).taskset]
    try:
        games = (client.run(endpoint, "scripted", vf.SamplingConfig(), data) for data in tasks)
        return list(await asyncio.wait_for(asyncio.gather(*games), 60))
    finally:
        await client.close()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def test_deals_and_rewards_survive_the_wire(server: Server) -> None:
    config = vf.resolve_env_config({"taskset": TASKSET, "stage": "performing"})
    received = [typed(episode) for episode in asyncio.run(over_the_wire(config, server.url))]
    assert [episode.ok for episode in received] == [True] * 3
    rows, _ = replays(received)
    for episode, row in zip(received, rows[0], strict=True):
        players = {trace.info["spyrl"].get("player"): trace for trace in episode.traces}
        assert [players[number].reward for number in range(1, 6)] == row["rewards"]
        assert any(row["rewards"])
        assert math.fsum(row["rewards"]) == pytest.approx(0)
        assert [trace.agent.trainable for trace in episode.traces] == [True] * 5 + [False] * 8

"""vLLM on a server: a stand-in with its endpoints, and where there is one, the real thing."""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from spyrl.errors import SpyRLError, UsageError
from spyrl.policy import Completion, Request, Sampling
from spyrl.policy.local import LocalPolicy
from spyrl.policy.models import LoadedModel, load_model
from spyrl.policy.opening import check_vllm
from spyrl.policy.settings import ModelSettings, VllmSettings
from spyrl.policy.vllm import VllmPolicy
from spyrl.policy.vllm_server import VllmServer
from spyrl.runs.folder import RunFolder
from spyrl.training.train import prepare, train
from tiny import Onlooker, make_tiny_model, tiny_config
from vllm_standin import VllmStandIn, serving_vllm

APPLES = ({"role": "user", "content": "Tell me of apples."},)


@pytest.fixture
def standin(tiny_model: Path) -> Iterator[VllmStandIn]:
    with serving_vllm(tiny_model) as served:
        yield served


@pytest.fixture
def loaded(tiny_model: Path) -> LoadedModel:
    return load_model(ModelSettings(path=str(tiny_model), device="cpu"), trainable=True)


def policy_of(loaded: LoadedModel, standin: VllmStandIn, folder: Path | None) -> VllmPolicy:
    server = VllmServer(standin.url, folder, backoff=0.0)
    server.check(100)
    return VllmPolicy(loaded, server)


def move(loaded: LoadedModel) -> None:
    with torch.no_grad():
        for number, weight in enumerate(loaded.model.parameters()):
            weight += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(number))


def as_learnt(loaded: LoadedModel, done: Completion, temperature: float) -> list[float]:
    """The log-probabilities of a completion's tokens by the model that is trained."""
    ids = torch.tensor([done.prompt_ids + done.token_ids])
    with torch.no_grad():
        logits = loaded.model(ids).logits[0, len(done.prompt_ids) - 1 : -1].double()
    logits[: done.min_tokens, list(done.held_back)] = float("-inf")
    logprobs = (logits / temperature).log_softmax(-1)
    return [float(row[token]) for row, token in zip(logprobs, done.token_ids, strict=True)]


def test_answers_are_the_models_own(loaded: LoadedModel, standin: VllmStandIn, tmp_path: Path) -> None:
    policy, local = policy_of(loaded, standin, tmp_path), LocalPolicy(loaded)
    sampling = Sampling(temperature=0.7, max_tokens=9, min_tokens=3)
    request = Request(APPLES, (5, 6, 7), sampling)
    ((*sampled,), greedy) = policy.generate([request, Request(APPLES, (1, 2), Sampling(0.0, max_tokens=6))])
    assert len(standin.asked) == 3  # the check's, and one a prompt, whatever its number of samples
    assert {call["prompt"] for call in map(_hashable, standin.asked[1:])} == {sampled[0].prompt_ids}
    assert len({done.token_ids for done in sampled}) == 3
    (own,) = local.generate([request])
    for done in sampled:
        assert done.prompt_ids == own[0].prompt_ids
        assert done.held_back == own[0].held_back
        assert done.min_tokens == 3
        assert done.text == loaded.tokenizer.decode(done.token_ids, skip_special_tokens=True)
        assert done.logprobs == pytest.approx(as_learnt(loaded, done, 0.7), abs=1e-4)
    (best,) = local.generate([Request(APPLES, (1,), Sampling(0.0, max_tokens=6))])
    assert [done.token_ids for done in greedy] == [best[0].token_ids] * 2
    assert greedy[0].logprobs == pytest.approx(best[0].logprobs, abs=1e-4)


def _hashable(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "prompt": tuple(body["prompt"])}


def test_the_same_seeds_are_the_same_answers(loaded: LoadedModel, standin: VllmStandIn, tmp_path: Path) -> None:
    policy = policy_of(loaded, standin, tmp_path)
    request = Request(APPLES, (5, 6, 7), Sampling(max_tokens=9))
    other = Request(({"role": "user", "content": "And pears?"},), (8, 9), Sampling(max_tokens=9))
    alone, together = policy.generate([request]), policy.generate([other, request])
    assert alone[0] == together[1]
    assert policy.generate([dataclasses.replace(request, seeds=(55, 6, 7))]) != alone


@pytest.mark.parametrize("temperature", [1.0, 0.6, 0.0])
def test_ballots_have_their_exact_probabilities(
    loaded: LoadedModel, standin: VllmStandIn, tmp_path: Path, temperature: float
) -> None:
    """As where the model answers itself, also where two choices begin alike."""
    choices = ("1", "2", "13", "14", "N/A")
    request = Request(APPLES, tuple(range(20)), Sampling(temperature), "\\boxed{", choices, "}")
    ((*mine,), (*own,)) = policy_of(loaded, standin, tmp_path).generate([request]) + LocalPolicy(loaded).generate(
        [request]
    )
    assert mine[0].probabilities == pytest.approx(own[0].probabilities, abs=1e-5)
    for one, other in zip(mine, own, strict=True):
        assert (one.text, one.token_ids, one.allowed, one.finish_reason) == (
            other.text,
            other.token_ids,
            other.allowed,
            other.finish_reason,
        )
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def test_more_choices_than_vllm_tells_of(loaded: LoadedModel, standin: VllmStandIn, tmp_path: Path) -> None:
    choices = tuple("abcdefghijklmnopqrstuv")
    with pytest.raises(UsageError, match="20 choices at most, not 22"):
        policy_of(loaded, standin, tmp_path).generate([Request(APPLES, (1,), begin="(", choices=choices, closing=")")])


def test_weights_are_handed_over(loaded: LoadedModel, standin: VllmStandIn, tmp_path: Path) -> None:
    policy = policy_of(loaded, standin, tmp_path / "new" / "folder")
    request = Request(APPLES, (5,), Sampling(max_tokens=9))
    move(loaded)
    ((stale,),) = policy.generate([request])
    assert stale.logprobs != pytest.approx(as_learnt(loaded, stale, 1.0), abs=1e-2)
    policy.wake()
    ((fresh,),) = policy.generate([request])
    assert fresh.logprobs == pytest.approx(as_learnt(loaded, fresh, 1.0), abs=1e-4)
    assert standin.control == ["/get_world_size", "/pause", "/collective_rpc", "/resume"]
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["model.safetensors"]


def test_where_top_p_cuts_no_log_probabilities_are_told(
    loaded: LoadedModel, standin: VllmStandIn, tmp_path: Path
) -> None:
    ((done,),) = policy_of(loaded, standin, tmp_path).generate(
        [Request(APPLES, (5,), Sampling(top_p=0.9, max_tokens=4))]
    )
    assert done.token_ids
    assert done.logprobs == ()


def test_a_prompt_that_fails_fails_alone(loaded: LoadedModel, standin: VllmStandIn, tmp_path: Path) -> None:
    policy = policy_of(loaded, standin, tmp_path)
    standin.broken = '"max_tokens": 7'
    failed, fine = policy.generate(
        [Request(APPLES, (1, 2), Sampling(max_tokens=7)), Request(APPLES, (3,), Sampling(max_tokens=6))]
    )
    assert [done.finish_reason for done in failed] == ["failed", "failed"]
    assert "500: out of memory" in failed[0].error
    assert fine[0].finish_reason in ("stop", "length")


def test_a_prompt_that_the_context_cannot_hold(loaded: LoadedModel, standin: VllmStandIn, tmp_path: Path) -> None:
    ((done,),) = policy_of(loaded, standin, tmp_path).generate([Request(APPLES, (1,), Sampling(max_tokens=16384))])
    assert done.error.endswith("the model's context holds 16384")
    assert len(standin.asked) == 1


# Before any work


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"development": False}, r"does not take weights \(get_world_size: .*404.*start it as VLLM_SERVER_DEV_MODE=1"),
        ({"raw": True}, "does not tell the probabilities that it samples with: start it with --logprobs-mode"),
        ({"length": 50}, "takes 50 tokens, and prompt and answer may have 100: start it with --max-model-len 100"),
        ({"broken": "prompt"}, "does not answer as is needed: the server answered 500: out of memory; start it as"),
    ],
)
def test_a_server_that_was_started_otherwise(standin: VllmStandIn, change: dict[str, Any], says: str) -> None:
    for key, value in change.items():
        setattr(standin, key, value)
    with pytest.raises(UsageError, match=says):
        VllmServer(standin.url, None, backoff=0.0).check(100)


def test_no_server() -> None:
    with pytest.raises(SpyRLError, match=r"No answer from http://127\.0\.0\.1:9/v1: .*; start the server"):
        VllmServer("http://127.0.0.1:9/v1", None, backoff=0.0).check(100)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (VllmSettings(), r"model\.engine=vllm needs vLLM: pip install 'spyrl\[vllm\]'"),
        (VllmSettings(server="http://x/v1"), r"pip install 'spyrl\[vllm\]', or set model\.vllm\.folder"),
    ],
)
def test_vllm_is_not_installed(monkeypatch: pytest.MonkeyPatch, settings: VllmSettings, says: str) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(UsageError, match=says):
        check_vllm(ModelSettings(device="cpu", engine="vllm", vllm=settings), 100)


# A whole run


def test_a_run_on_a_server(tmp_path: Path, tiny_model: Path, standin: VllmStandIn) -> None:
    """Two iterations, each with the weights of its time."""
    words = ["model.engine=vllm", f"model.vllm.server={standin.url}", f"model.vllm.folder={tmp_path / 'weights'}"]
    words += ["training.iterations=2", "training.lr=1e-2", "training.importance_cap=2"]
    words += ["training.stages=joint"]
    config = tiny_config(tmp_path, tiny_model, *words)
    run, onlooker = RunFolder(Path(config.run.folder) / "tiny"), Onlooker()
    assert train(config, run, onlooker, preset="tiny").finished
    lines = list(run.read_metrics())
    assert [line["tokens/trained"] > 0 for line in lines] == [True] * 2
    assert max(line["logprob_gap/max"] for line in lines) < 1e-3
    assert all(line["importance/mean"] == pytest.approx(1, abs=1e-3) for line in lines)
    assert all(line["seconds/weights"] > 0 for line in lines)
    assert onlooker.counted > 0
    assert standin.control.count("/collective_rpc") == 2
    own = load_model(ModelSettings(path=str(tiny_model), device="cpu"), trainable=False).model.state_dict()
    assert not torch.equal(standin.model.state_dict()["model.norm.weight"], own["model.norm.weight"])


def test_weights_that_are_not_handed_over_show(tmp_path: Path, tiny_model: Path) -> None:
    """Of a server that plays with other weights the gap tells, and truncated weights answer it."""
    other = make_tiny_model(tmp_path / "other", seed=5)
    with serving_vllm(other) as standin:
        words = ["model.engine=vllm", f"model.vllm.server={standin.url}", f"model.vllm.folder={tmp_path / 'weights'}"]
        words += ["training.iterations=1", "training.importance_cap=2", "training.stages=performing"]
        standin.load = lambda weights: None  # type: ignore[method-assign]
        config = tiny_config(tmp_path, tiny_model, *words)
        run = RunFolder(Path(config.run.folder) / "tiny")
        train(config, run, Onlooker(), preset="tiny")
        (line,) = run.read_metrics()
        assert line["logprob_gap/mean"] > 0.5
        assert line["importance/mean"] < 0.99  # 1 but for what the cap takes
        assert line["importance/capped"] > 0.05


def test_a_measured_run_measures_with_the_newest_weights(
    tmp_path: Path, tiny_model: Path, standin: VllmStandIn
) -> None:
    words = ["model.engine=vllm", f"model.vllm.server={standin.url}", f"model.vllm.folder={tmp_path / 'weights'}"]
    held_out = tmp_path / "held-out.jsonl"
    held_out.write_text("".join(f'{{"id": "h{n}", "text": "held {n} out of them"}}\n' for n in range(4)))
    words += ["training.iterations=1", "training.evaluation.every=1", "training.evaluation.documents=3"]
    config = tiny_config(tmp_path, tiny_model, *words, f"training.evaluation.path={held_out}")
    run = RunFolder(Path(config.run.folder) / "tiny")
    train(config, run, Onlooker(), preset="tiny")
    assert standin.control.count("/collective_rpc") == 2


# Over NCCL, as far as there is none


@pytest.fixture
def fake_transfer(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """A vllm package with a weight transfer that keeps what it was opened with and what it sent."""
    opened: list[tuple[Any, Any]] = []

    class Sender:
        def __init__(self, init_info: Any, client: Any, source: Any) -> None:
            self.sent: list[dict[str, torch.Tensor]] = []
            self.source = source
            client.init_weight_transfer_engine({"world_size": init_info.world_size})

        def send_weights(self) -> None:
            told = [(meta.name, meta.dtype, meta.shape) for meta in self.source.metadata()]
            sent = list(self.source)
            assert told == [(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in sent]
            self.sent.append(dict(sent))

    class Client:
        def __init__(self, base_url: str, timeout: float) -> None:
            self.base_url = base_url

        def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
            self.init_info = init_info

    def trainer_init(init_info: Any, *, client: Any, source: Any) -> Sender:
        sender = Sender(init_info, client, source)
        opened.append((client, sender))
        return sender

    made = {
        "vllm": {},
        "vllm.distributed": {},
        "vllm.distributed.weight_transfer": {},
        "vllm.distributed.weight_transfer.base": {
            "WeightSource": object,
            "ParamMeta": dataclasses.make_dataclass("ParamMeta", ["name", "dtype", "shape"]),
        },
        "vllm.distributed.weight_transfer.clients": {"HTTPVLLMWeightSyncClient": Client},
        "vllm.distributed.weight_transfer.factory": {
            "WeightTransferTrainerFactory": types.SimpleNamespace(trainer_init=trainer_init)
        },
        "vllm.distributed.weight_transfer.nccl_engine": {
            "NCCLTrainerInitInfo": dataclasses.make_dataclass(
                "NCCLTrainerInitInfo", ["master_address", "master_port", "world_size", "rank"]
            )
        },
        "vllm.utils": {},
        "vllm.utils.network_utils": {"get_ip": lambda: "10.0.0.1", "get_open_port": lambda: 4321},
    }
    for name, values in made.items():
        module = types.ModuleType(name)
        module.__path__ = []
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
        above, _, last = name.rpartition(".")
        if above:
            setattr(sys.modules[above], last, module)
    return opened


def test_weights_over_nccl(loaded: LoadedModel, standin: VllmStandIn, fake_transfer: list[tuple[Any, Any]]) -> None:
    policy = policy_of(loaded, standin, None)
    policy.wake()
    first = {name: tensor.clone() for name, tensor in fake_transfer[0][1].sent[0].items()}
    move(loaded)
    policy.wake()
    ((client, sender),) = fake_transfer  # one connection for the whole run
    assert client.base_url == standin.url.removesuffix("/v1")
    assert client.init_info == {"world_size": 3}  # this process, and the server's two GPUs
    own = dict(loaded.model.named_parameters())
    assert set(sender.sent[1]) == set(own)
    assert all(torch.equal(sender.sent[1][name], own[name]) for name in own)
    assert not torch.equal(first["model.norm.weight"], sender.sent[1]["model.norm.weight"])
    assert standin.control[-2:] == ["/pause", "/resume"]


def test_a_transfer_that_breaks_is_told(
    loaded: LoadedModel, standin: VllmStandIn, fake_transfer: list[tuple[Any, Any]]
) -> None:
    policy = policy_of(loaded, standin, None)
    policy.wake()

    def fail() -> None:
        raise RuntimeError("NCCL error: remote process exited")

    fake_transfer[0][1].send_weights = fail
    with pytest.raises(SpyRLError, match="did not take the weights: NCCL error: remote process exited"):
        policy.wake()


def test_nccl_needs_a_gpu(standin: VllmStandIn, fake_transfer: list[tuple[Any, Any]]) -> None:
    settings = ModelSettings(device="cpu", engine="vllm", vllm=VllmSettings(server=standin.url))
    with pytest.raises(UsageError, match=r"over NCCL from a GPU; without one, set model\.vllm\.folder"):
        check_vllm(settings, 100)


def test_a_run_without_its_server_ends_before_any_model_is_loaded(tmp_path: Path, tiny_model: Path) -> None:
    words = ["model.engine=vllm", "model.vllm.server=http://127.0.0.1:9/v1", "model.vllm.folder=w"]
    onlooker = Onlooker()
    with pytest.raises(SpyRLError, match="start the server"):
        prepare(tiny_config(tmp_path, tiny_model, *words), RunFolder(tmp_path / "run"), onlooker)
    assert onlooker.said == []

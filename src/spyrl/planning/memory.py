"""Bytes on one device: what is held all the time, and what generating, learning and the optimiser's step add.

Counted from what the learner holds and what autograd saves in the layers of a Llama or Qwen3 decoder as transformers
writes them. Trained whole, weights, gradients, AdamW's two moments and the reference are float32, and autocast keeps
copies of the weights in the type that is computed in; with LoRA the base is in that type and there is no reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spyrl.config import Config
from spyrl.planning.devices import Device
from spyrl.planning.shape import Shape
from spyrl.planning.work import Forward, Generation
from spyrl.training.logprobs import numbers_at_a_time

FLOAT = 4
_PROGRAM = {"cpu": 0.55e9, "gpu": 1.0e9}  # libraries as they are loaded; a CUDA context with its kernels
_SPARE = {"cpu": 0.0, "gpu": 0.05}  # of a device's memory: what torch's allocator cannot use in pieces
_ROOM = 64  # tokens that a row's cache has in spare, see spyrl.policy.cache


@dataclass(frozen=True)
class Part:
    """A part of the memory: what it is, and bytes."""

    name: str
    bytes: float


@dataclass(frozen=True)
class Memory:
    """Bytes on one device: ``held`` always, ``generating`` and ``learning`` each for a time, ``step`` at its end."""

    device: Device
    held: tuple[Part, ...]
    generating: tuple[Part, ...]
    learning: tuple[Part, ...]
    step: tuple[Part, ...]

    @property
    def phases(self) -> dict[str, float]:
        """The peak of each phase, what is held included."""
        held = _sum(self.held)
        return {
            "generating": held + _sum(self.generating),
            "learning": held + _sum(self.learning),
            "stepping": held + _sum(self.step),
        }

    @property
    def peak(self) -> float:
        """The most that is in use at a time."""
        return max(self.phases.values())

    @property
    def room(self) -> float:
        """What the device has for it."""
        return self.device.memory * (1 - _SPARE["cpu" if self.device.is_cpu else "gpu"])

    @property
    def fits(self) -> bool:
        """Whether it has enough."""
        return self.peak <= self.room


def _sum(parts: Sequence[Part]) -> float:
    return sum(part.bytes for part in parts)


def program_bytes(device: Device) -> float:
    """Bytes that libraries take before there is a model; on a GPU, its context."""
    return _PROGRAM["cpu" if device.is_cpu else "gpu"]


def compute_bytes(config: Config, device: Device) -> int:
    """Bytes of a number in the type that is computed in."""
    dtype = config.model.dtype
    if dtype == "auto":
        return FLOAT if device.is_cpu else 2
    return FLOAT if dtype == "float32" else 2


def weight_bytes(config: Config, device: Device) -> int:
    """Bytes of a base weight: float32 where it is trained."""
    return compute_bytes(config, device) if config.model.lora.rank else FLOAT


def cache_bytes(shape: Shape, config: Config, device: Device) -> int:
    """Bytes of a token's keys and values in all layers.

    Rotated keys are in float32 where weights are, whatever is computed in.
    """
    key, value = weight_bytes(config, device), compute_bytes(config, device)
    return shape.layers * shape.keys * (key + value)


def saved_by_layer(shape: Shape, config: Config, device: Device) -> float:
    """Bytes a token that one layer saves for its backward pass.

    h hidden size, q width of queries, k of keys, m of the MLP, n bytes of a computed number (4 or 2). Both norms save
    their float32 input and, where weights are trained, what these multiply; the linear layers their input, in bfloat16
    a copy for each; attention queries, keys, values (repeated to all heads by SDPA), its result and the
    logarithm of its sums; the MLP four tensors.
    """
    n, weights, lora = compute_bytes(config, device), weight_bytes(config, device), bool(config.model.lora.rank)
    h, q, k, m = shape.hidden, shape.queries, shape.keys, shape.mlp
    low = n < FLOAT
    residual = 2 * h * weights
    norms = 2 * h * FLOAT * (low and lora) + 2 * h * FLOAT * (not lora)
    inputs = 5 * h * n if low else 2 * h * FLOAT
    normed = 0.0
    if shape.qk_norm:
        normed = (q + k) * (FLOAT + (0 if lora else n))
    keys_and_values = 2 * k if not device.is_cpu and config.training.packed else 2 * q
    attention = (3 * q + keys_and_values) * n + shape.heads * FLOAT
    adapters = 7 * shape.lora_rank * n
    return residual + norms + inputs + normed + attention + 4 * m * n + adapters


def activation_bytes(shape: Shape, config: Config, device: Device, each: Forward) -> tuple[float, float]:
    """Bytes that a forward pass saves for its backward pass: all it holds at its end, and the most in the layers later.

    With gradient checkpointing that is the layers' inputs at first, and one layer besides while it is computed again.
    """
    layer = saved_by_layer(shape, config, device) * each.tokens
    around = 3 * shape.hidden * FLOAT * each.tokens
    if device.is_cpu:  # SDPA makes each layer's masks numbers; FlexAttention needs none
        layer += each.pairs * compute_bytes(config, device)
        around += each.pairs + each.rows * each.width**2
    if not config.training.gradient_checkpointing:
        return (shape.layers * layer + around,) * 2
    working = (3 * shape.mlp + 2 * shape.hidden) * compute_bytes(config, device) * each.tokens
    inputs = shape.layers * shape.hidden * weight_bytes(config, device) * each.tokens + around
    return inputs, inputs + layer + working


def learning_parts(shape: Shape, config: Config, device: Device, each: Forward) -> tuple[float, float]:
    """Bytes of activations, and of logits or their gradients, at the worst moment of a forward and backward pass.

    That is the backward pass's beginning, with the logits, their gradients and the probabilities of a few places (see
    `spyrl.training.logprobs`); or what follows, with the gradient of the output layer's weights if they are trained;
    or, with gradient checkpointing, a layer that is computed again.
    """
    forward, layers = activation_bytes(shape, config, device, each)
    logits = each.logits * shape.vocabulary * compute_bytes(config, device)
    head = 0 if shape.adapters else shape.head * FLOAT
    probabilities = min(each.written * shape.vocabulary, numbers_at_a_time("cpu" if device.is_cpu else "cuda"))
    moments = (
        (forward, 2 * logits + 4 * probabilities * FLOAT),
        (forward, logits + head),
        (layers, head if shape.tied else 0),
    )
    return max(moments, key=sum)


def sharded(bytes_: float, gpus: int) -> float:
    """A device's part of what full sharding (FSDP) divides among ``gpus``: weights, gradients, moments, reference."""
    return bytes_ / gpus


def memory(
    shape: Shape, config: Config, device: Device, gpus: int, passes: Sequence[Forward], generated: Sequence[Generation]
) -> Memory:
    """The memory of one of ``gpus`` devices; ``passes`` and ``generated`` are at the answers' limits."""
    training = config.training
    n, weights, low = compute_bytes(config, device), weight_bytes(config, device), compute_bytes(config, device) < FLOAT
    base = shape.parameters * weights + shape.adapters * FLOAT
    moments = 2 * FLOAT * shape.trained * (2 if training.optimizer == "per_stage" else 1)
    has_reference = training.kl > 0 and not shape.adapters
    held = [
        Part("libraries" if device.is_cpu else "CUDA context", program_bytes(device)),
        Part(f"weights ({'float32' if weights == FLOAT else 'bfloat16'})", sharded(base, gpus)),
        Part("AdamW's moments (float32)", sharded(moments, gpus)),
    ]
    if has_reference:
        held.append(Part("reference policy (float32)", sharded(shape.parameters * FLOAT, gpus)))
    # Under autocast float32 weights have copies in bfloat16: all of them, or of two layers and the head where sharded.
    copies = 0.0
    if low and weights == FLOAT:
        gathered = 2 * shape.linear / shape.layers + shape.head
        copies = n * (shape.parameters if gpus == 1 else gathered)
    gradients = sharded(FLOAT * shape.trained, gpus)
    activations, logits = max((learning_parts(shape, config, device, each) for each in passes), key=sum)
    learning = [
        Part("gradients (float32)", gradients),
        *([Part("weights in bfloat16", copies)] if copies else []),
        Part("activations", activations),
        Part("logits", logits),
    ]
    # torch's AdamW has a temporary of all weights on a GPU, of the largest tensor on a CPU.
    temporary = 2 * shape.largest if device.is_cpu else shape.trained
    step = [Part("gradients (float32)", gradients), Part("temporaries", sharded(FLOAT * temporary, gpus))]
    return Memory(
        device,
        tuple(held),
        _generating(shape, config, device, gpus, generated, copies),
        tuple(learning),
        tuple(step),
    )


def _generating(
    shape: Shape, config: Config, device: Device, gpus: int, generated: Sequence[Generation], copies: float
) -> tuple[Part, ...]:
    n = compute_bytes(config, device)
    parts = []
    if gpus > 1 or copies:  # whoever writes needs all weights
        copies = n * shape.parameters
        parts.append(Part("weights to write with (bfloat16)" if n < FLOAT else "weights to write with", copies))
    cached = max(
        (each.rows * (each.width + each.steps + 1 + _ROOM) for stage in generated for each in stage.decoding),
        default=0,
    )
    # One layer at a time is copied when rows end or more room is needed.
    parts.append(Part("keys and values", cached * cache_bytes(shape, config, device) * (1 + 1 / shape.layers)))
    rows = max((each.rows for stage in generated for each in stage.decoding), default=0)
    read = max((each.tokens for stage in generated for each in stage.reading), default=0)
    working = read * (3 * shape.mlp + 4 * shape.hidden) * n + rows * shape.vocabulary * 5 * FLOAT
    parts.append(Part("reading and drawing", working))
    return tuple(parts)

"""The maths of Llama-architecture models over a key/value pool, written for small batches.

Weights are a snapshot of a Hugging Face model, fused for fewer calls: norm weights are folded
into the linears that follow, q/k/v and gate/up are one matrix each, the attention scale sits in
q, and the rows of q and k are reordered so that a rotary pair is adjacent and rotation is one
complex product.  Shapes: B sequences, T tokens of all sequences one after another, N query slots
per sequence, L key slots, G query heads per key head, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from dreamgym.llm.kv_pool import KVPool

_ARCHITECTURES = ("llama", "mistral", "qwen2")
_ROPE_TYPES = ("default", "linear", "llama3")
_BF16_MIN_HIDDEN = 512
"""Below this width the casts cost more than bfloat16 multiplication saves."""


class Ragged(NamedTuple):
    """Where the T tokens of a ragged prefill go."""

    rows: torch.Tensor
    """Pool row of each sequence, [B]."""
    token_rows: torch.Tensor
    """Pool row of each token, [T]."""
    positions: torch.Tensor
    """Position of each token in its sequence, [T]."""
    slots: torch.Tensor
    """Index of each token in the padded [B * N] query layout, [T]."""
    last: torch.Tensor
    """Index into T of each sequence's last token, [B]."""
    width: int
    """N, the longest run of new tokens."""
    total: int
    """L, the longest sequence including what was cached."""
    is_fresh: bool
    """True when nothing was cached for any sequence."""


class Linear:
    """A frozen linear layer; bfloat16 and prepacked where the CPU multiplies bfloat16."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, *, bf16: bool) -> None:
        self._bf16 = bf16
        self._bias = bias.to(torch.bfloat16) if bf16 and bias is not None else bias
        self._weight = weight.contiguous()
        if bf16:
            self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(torch.bfloat16))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return x W^T + b."""
        if not self._bf16:
            return functional.linear(x, self._weight, self._bias)
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            x.to(torch.bfloat16), self._weight, self._bias, "none", [], ""
        )
        return out.to(x.dtype)


class _Layer(NamedTuple):
    qkv: Linear
    out: Linear
    gate_up: Linear
    down: Linear


def unsupported_reason(model: Any) -> str:
    """Return why this engine cannot run the model, or "" when it can."""
    config = _base(model).config
    rope = getattr(config, "rope_parameters", None) or {}
    if config.model_type not in _ARCHITECTURES:
        return f"model type {config.model_type!r} is not one of {', '.join(_ARCHITECTURES)}"
    if config.hidden_act not in ("silu", "swish"):
        return f"activation {config.hidden_act!r} is not silu"
    if rope.get("rope_type", "default") not in _ROPE_TYPES:
        return f"rotary embedding {rope.get('rope_type')!r} is not one of {_ROPE_TYPES}"
    is_sliding = "sliding_attention" in (getattr(config, "layer_types", None) or ())
    if is_sliding or (config.model_type == "mistral" and config.sliding_window):
        return "sliding-window attention"
    return ""


class LlamaWeights:
    """A snapshot of a model's weights with the two passes an engine needs."""

    def __init__(self, model: Any, *, max_context: int, precision: str = "auto") -> None:
        config = _base(model).config
        parameter = next(model.parameters())
        self.device: torch.device = parameter.device
        self.dtype: torch.dtype = parameter.dtype
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        hidden: int = config.hidden_size
        self.head_dim: int = getattr(config, "head_dim", None) or hidden // self.heads
        self.num_layers: int = config.num_hidden_layers
        self.vocab_size: int = config.vocab_size
        self._eps: float = config.rms_norm_eps
        self._bf16 = self.device.type == "cpu" and (
            precision == "bfloat16"
            or (precision == "auto" and hidden >= _BF16_MIN_HIDDEN and has_fast_bf16())
        )
        self._rotations = self._rotation_table(model, max_context)
        self.load(model)

    @torch.inference_mode()
    def load(self, model: Any) -> None:
        """Read the weights again after an update; the snapshot never follows by itself."""
        base = _base(model)
        self._embedding = base.model.embed_tokens.weight.detach().clone()
        self._final_norm = base.model.norm.weight.detach().clone()
        head = _weight(base.lm_head)
        is_tied = base.lm_head.weight is base.model.embed_tokens.weight
        if is_tied and not self._bf16:
            head = self._embedding
        bias = getattr(base.lm_head, "bias", None)
        self._head = Linear(head.clone() if not is_tied else head, bias, bf16=self._bf16)
        self._layers = [self._layer(layer) for layer in base.model.layers]

    def _layer(self, layer: Any) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        scale = self.head_dim**-0.5
        before = layer.input_layernorm.weight.detach()
        after = layer.post_attention_layernorm.weight.detach()
        q_weight, q_bias = _pair(attention.q_proj)
        k_weight, k_bias = _pair(attention.k_proj)
        v_weight, v_bias = _pair(attention.v_proj)
        qkv = torch.cat([self._paired(q_weight) * scale, self._paired(k_weight), v_weight])
        qkv_bias = None
        if q_bias is not None and k_bias is not None and v_bias is not None:
            qkv_bias = torch.cat([self._paired(q_bias) * scale, self._paired(k_bias), v_bias])
        gate_weight, gate_bias = _pair(mlp.gate_proj)
        up_weight, up_bias = _pair(mlp.up_proj)
        gate_up = torch.cat([gate_weight, up_weight])
        gate_up_bias = None
        if gate_bias is not None and up_bias is not None:
            gate_up_bias = torch.cat([gate_bias, up_bias])
        out_weight, out_bias = _pair(attention.o_proj)
        down_weight, down_bias = _pair(mlp.down_proj)
        return _Layer(
            qkv=Linear(qkv * before, qkv_bias, bf16=self._bf16),
            out=Linear(out_weight.clone(), _clone(out_bias), bf16=self._bf16),
            gate_up=Linear(gate_up * after, gate_up_bias, bf16=self._bf16),
            down=Linear(down_weight.clone(), _clone(down_bias), bf16=self._bf16),
        )

    def _paired(self, rows: torch.Tensor) -> torch.Tensor:
        """Reorder head rows (j, j + d/2) so that each rotary pair is adjacent."""
        split = rows.view(-1, 2, self.head_dim // 2, *rows.shape[1:])
        return split.transpose(1, 2).reshape(rows.shape)

    def _rotation_table(self, model: Any, max_context: int) -> torch.Tensor:
        """Return exp(i * position * frequency) * scaling, [max_context, 1, head_dim / 2]."""
        rotary = _base(model).model.rotary_emb
        frequencies = rotary.inv_freq.detach().float()
        positions = torch.arange(max_context, device=frequencies.device, dtype=torch.float32)
        angles = positions[:, None] * frequencies
        scaling = torch.full_like(angles, float(rotary.attention_scaling))
        return torch.polar(scaling, angles)[:, None].to(self.device)

    @torch.inference_mode()
    def decode(
        self,
        pool: KVPool,
        start: int,
        *,
        ids_B: torch.Tensor,
        positions_B: torch.Tensor,
        total: int,
    ) -> torch.Tensor:
        """Read one token per sequence of rows start..start+B; return next logits [B, V].

        `total` is the largest position + 1, so that attention stops there.
        """
        count = ids_B.shape[0]
        rows = torch.arange(start, start + count, device=self.device)
        slots = torch.arange(total, device=self.device)
        bias = torch.zeros((count, total), dtype=self.dtype, device=self.device)
        bias.masked_fill_(slots > positions_B[:, None], float("-inf"))
        bias = bias.repeat_interleave(self.kv_heads, 0)[:, None]
        rotation = self._rotations[positions_B]
        groups = self.heads // self.kv_heads
        x = self._embedding[ids_B]
        for index, layer in enumerate(self._layers):
            q, k, v = self._project(layer, x, rotation)
            pool.write(index, rows, positions_B, k, v)
            keys, values = pool.window(index, start, count, total)
            q = q.reshape(count * self.kv_heads, groups, self.head_dim)
            # bmm, not scaled_dot_product_attention: with one query per head it is twice as
            # fast on a CPU, and adding the bias in place beats baddbmm.
            scores = torch.bmm(q, keys.transpose(1, 2)).add_(bias)
            mixed = torch.bmm(torch.softmax(scores, dim=-1), values)
            x = x + layer.out(mixed.reshape(count, self.heads * self.head_dim))
            x = self._mlp(layer, x)
        return self._logits(x)

    @torch.inference_mode()
    def prefill(self, pool: KVPool, ids_T: torch.Tensor, ragged: Ragged) -> torch.Tensor:
        """Read several new tokens per sequence; return logits [B, V] after each last one."""
        rotation = self._rotations[ragged.positions]
        mask = None if ragged.is_fresh else self._prefill_mask(ragged)
        x = self._embedding[ids_T]
        for index, layer in enumerate(self._layers):
            q, k, v = self._project(layer, x, rotation)
            pool.write(index, ragged.token_rows, ragged.positions, k, v)
            x = x + layer.out(self._attend(pool, index, q, ragged=ragged, mask=mask))
            x = self._mlp(layer, x)
        return self._logits(x[ragged.last])

    def _attend(
        self,
        pool: KVPool,
        index: int,
        q_T: torch.Tensor,
        *,
        ragged: Ragged,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """Attend in the padded layout and return the T real tokens, [T, heads * head_dim]."""
        count, groups = ragged.rows.shape[0], self.heads // self.kv_heads
        padded = q_T.new_zeros((count * ragged.width, self.heads, self.head_dim))
        padded[ragged.slots] = q_T
        q = padded.view(count, ragged.width, self.kv_heads, groups, self.head_dim)
        q = q.permute(0, 2, 3, 1, 4).flatten(0, 1)
        keys, values = pool.select(index, ragged.rows, ragged.total)
        mixed = functional.scaled_dot_product_attention(
            q,
            keys[:, None].expand(-1, groups, -1, -1),
            values[:, None].expand(-1, groups, -1, -1),
            attn_mask=mask,
            is_causal=mask is None,
            scale=1.0,
        )
        mixed = mixed.view(count, self.kv_heads, groups, ragged.width, self.head_dim)
        mixed = mixed.permute(0, 3, 1, 2, 4)
        return mixed.reshape(count * ragged.width, -1)[ragged.slots]

    def _prefill_mask(self, ragged: Ragged) -> torch.Tensor:
        """Return the additive causal mask, [B * kv_heads, 1, N, L]."""
        count = ragged.rows.shape[0]
        # Padding queries read position 0 only: a row without any key would give NaN.
        positions = torch.zeros(count * ragged.width, dtype=torch.long, device=self.device)
        positions[ragged.slots] = ragged.positions
        slots = torch.arange(ragged.total, device=self.device)
        hidden = slots > positions.view(count, ragged.width, 1)
        mask = torch.zeros(hidden.shape, dtype=self.dtype, device=self.device)
        mask.masked_fill_(hidden, float("-inf"))
        return mask.repeat_interleave(self.kv_heads, 0)[:, None]

    def _project(
        self, layer: _Layer, x: torch.Tensor, rotation: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return rotated q [T, heads, d], rotated k and v [T, kv_heads, d]."""
        qkv = layer.qkv(self._normed(x)).view(x.shape[0], -1, self.head_dim)
        turning = self.heads + self.kv_heads
        pairs = qkv[:, :turning].float()
        pairs = pairs.view(x.shape[0], turning, self.head_dim // 2, 2)
        rotated = torch.view_as_real(torch.view_as_complex(pairs) * rotation).flatten(2)
        rotated = rotated.to(qkv.dtype)
        return rotated[:, : self.heads], rotated[:, self.heads :], qkv[:, turning:]

    def _mlp(self, layer: _Layer, x: torch.Tensor) -> torch.Tensor:
        gate, up = layer.gate_up(self._normed(x)).chunk(2, dim=-1)
        return x + layer.down(functional.silu(gate).mul_(up))

    def _normed(self, x: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, (x.shape[-1],), None, self._eps)

    def _logits(self, x: torch.Tensor) -> torch.Tensor:
        return self._head(self._normed(x) * self._final_norm)


def has_fast_bf16() -> bool:
    """Return whether this CPU multiplies bfloat16 in hardware (AVX512_BF16 or AMX)."""
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    probes = (getattr(torch.cpu, name, None) for name in names)
    return any(bool(probe()) for probe in probes if probe is not None)


def _base(model: Any) -> Any:
    """Return the causal LM inside a peft wrapper, or the model itself."""
    return model.get_base_model() if hasattr(model, "peft_config") else model


def _weight(linear: Any) -> torch.Tensor:
    """Return the weight a linear acts with, LoRA adapters merged in."""
    if not hasattr(linear, "base_layer"):
        weight: torch.Tensor = linear.weight.detach()
        return weight
    weight = linear.base_layer.weight.detach()
    if linear.disable_adapters or linear.merged:
        return weight
    for adapter in linear.active_adapters:
        if adapter in linear.lora_A:
            weight = weight + linear.get_delta_weight(adapter).detach()
    return weight


def _pair(linear: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    bias = getattr(linear, "bias", None)
    return _weight(linear), None if bias is None else bias.detach()


def _clone(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.clone()

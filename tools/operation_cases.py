"""Single operations, computed by PyTorch in float64 from float32 inputs: tests/fixtures/operations.{json,safetensors}.

The meaning of each operation, its operands and their order are those of docs/operations.md. Where PyTorch has no such
operation (counter-based dropout, narrowing of weights) the value comes from numpy, straight from that page's text.
"""

import json
import math

import numpy
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gpt2.modeling_gpt2 import ACT2FN
from transformers.models.llama.modeling_llama import (LlamaRMSNorm, LlamaRotaryEmbedding, apply_rotary_pos_emb)

IGNORED = -100
# Largest error allowed, as a part of the expected tensor's largest magnitude. float32 arithmetic with a rounded result
# keeps well under the first; one bfloat16 rounding that falls the other way is 2^-8.
TOLERANCE = {"f32": 1e-5, "bf16": 2.0**-7}

# Gradients of parameters say whether they add to an accumulator.
ACCUMULATING = {"embedding_dtable", "linear_dweight", "linear_dbias", "layer_norm_dweight", "rms_norm_dweight",
                "head_loss_gradient", "mlp_gradient"}


class Cases:
    """Collects cases: tensors named `case.tensor`, and per case the operations that connect them."""

    def __init__(self):
        self.tensors, self.cases = {}, []
        self.generator = torch.Generator().manual_seed(20)

    def case(self, name):
        self.cases.append({"case": name, "calls": []})
        return Case(self, name)

    def random(self, *shape, scale=1.0, shift=0.0):
        """A float64 tensor whose values are float32 numbers, so that storing it loses nothing."""
        values = torch.randn(*shape, generator=self.generator) * scale + shift
        return values.double().requires_grad_()

    def integers(self, bound, *shape):
        return torch.randint(bound, shape, generator=self.generator, dtype=torch.int64)


class Case:
    def __init__(self, cases, name):
        self.cases, self.name = cases, name

    def put(self, **tensors):
        """Stores tensors: float64 as float32 (sums of squares, `s_…`, aside), int64 as int32, others as they are."""
        for name, tensor in tensors.items():
            tensor = tensor.detach()
            if tensor.dtype == torch.float64 and not name.startswith("s_"):
                tensor = tensor.float()
            elif tensor.dtype == torch.int64:
                tensor = tensor.int()
            self.cases.tensors[f"{self.name}.{name}"] = tensor.contiguous().clone()

    def call(self, operation, inputs, outputs, attributes=None, tolerance="f32"):
        """One operation of the case: operand names in the order of docs/operations.md."""
        attributes = dict(attributes or {})
        if operation in ACCUMULATING:
            attributes.setdefault("accumulate", 0)
        self.cases.cases[-1]["calls"].append({
            "operation": operation, "attributes": attributes, "inputs": inputs.split(), "outputs": outputs.split(),
            "tolerance": TOLERANCE[tolerance]})


def gradients(y, d_y, *inputs):
    return torch.autograd.grad(y, inputs, d_y, retain_graph=True)


def embedding(cases):
    case = cases.case("embedding")
    indices = cases.integers(11, 2, 7)
    indices[1] = indices[0, 0]  # one row gathers many gradients
    table, d_y, into = cases.random(11, 6), cases.random(2, 7, 6), cases.random(11, 6)
    y = torch.nn.functional.embedding(indices, table)
    (d_table,) = gradients(y, d_y, table)
    case.put(indices=indices, table=table, y=y, d_y=d_y, d_table=d_table, into=into, d_table_sum=into + d_table)
    case.call("embedding", "indices table", "y")
    case.call("embedding_dtable", "indices d_y", "d_table", {"rows": 11})
    case.call("embedding_dtable", "indices d_y into", "d_table_sum", {"rows": 11, "accumulate": 1})


def add(cases):
    case = cases.case("add")
    a, b = cases.random(2, 3, 5), cases.random(2, 3, 5)
    case.put(a=a, b=b, y=a + b)
    case.call("add", "a b", "y")


def linear(cases):
    for orientation in ("oi", "io"):
        for bias in (0, 1):
            case = cases.case(f"linear_{orientation}" + ("_bias" if bias else ""))
            x, d_y, b = cases.random(2, 5, 7), cases.random(2, 5, 9), cases.random(9)
            w = cases.random(9, 7) if orientation == "oi" else cases.random(7, 9)
            into, into_bias = cases.random(*w.shape), cases.random(9)
            y = torch.nn.functional.linear(x, w if orientation == "oi" else w.T, b if bias else None)
            d_x, d_w = gradients(y, d_y, x, w)
            case.put(x=x, w=w, y=y, d_y=d_y, d_x=d_x, d_w=d_w, into=into, d_w_sum=into + d_w)
            case.call("linear", "x w bias" if bias else "x w", "y", {"weight": orientation, "bias": bias})
            case.call("linear_dx", "d_y w", "d_x", {"weight": orientation})
            case.call("linear_dweight", "x d_y", "d_w", {"weight": orientation})
            case.call("linear_dweight", "x d_y into", "d_w_sum", {"weight": orientation, "accumulate": 1})
            if bias:
                (d_bias,) = gradients(y, d_y, b)
                case.put(bias=b, d_bias=d_bias, into_bias=into_bias, d_bias_sum=into_bias + d_bias)
                case.call("linear_dbias", "d_y", "d_bias")
                case.call("linear_dbias", "d_y into_bias", "d_bias_sum", {"accumulate": 1})

    case = cases.case("linear_gelu")
    x, w, b = cases.random(2, 5, 7), cases.random(7, 9), cases.random(9)
    u = x @ w + b
    case.put(x=x, w=w, bias=b, u=u, h=torch.nn.functional.gelu(u, approximate="tanh"))
    case.call("linear_gelu", "x w bias", "u h", {"weight": "io", "bias": 1, "approximate": "tanh"})
    case = cases.case("linear_add")
    x, w, r = cases.random(2, 5, 7), cases.random(9, 7), cases.random(2, 5, 9)
    case.put(x=x, w=w, r=r, y=r + x @ w.T)
    case.call("linear_add", "x w r", "y", {"weight": "oi", "bias": 0})


def layer_norm(cases):
    for name, channels in (("layer_norm", 48), ("layer_norm_ragged", 37)):
        case = cases.case(name)
        x, d_y = cases.random(2, 5, channels, scale=2.0, shift=0.7), cases.random(2, 5, channels)
        w, b = cases.random(channels, scale=0.3, shift=1.0), cases.random(channels)
        into_w, into_b = cases.random(channels), cases.random(channels)
        y = torch.nn.functional.layer_norm(x, (channels,), w, b, eps=1e-5)
        mean = x.mean(-1)
        rstd = torch.rsqrt(x.var(-1, unbiased=False) + 1e-5)
        d_x, d_w, d_b = gradients(y, d_y, x, w, b)
        case.put(x=x, w=w, b=b, y=y, mean=mean, rstd=rstd, d_y=d_y, d_x=d_x, d_w=d_w, d_b=d_b, into_w=into_w, into_b=into_b,
                 d_w_sum=into_w + d_w, d_b_sum=into_b + d_b)
        case.call("layer_norm", "x w b", "y mean rstd", {"eps": 1e-5})
        case.call("layer_norm_dx", "d_y x w mean rstd", "d_x")
        case.call("layer_norm_dweight", "d_y x mean rstd", "d_w d_b")
        case.call("layer_norm_dweight", "d_y x mean rstd into_w into_b", "d_w_sum d_b_sum", {"accumulate": 1})


def rms_norm(cases):
    for name, channels in (("rms_norm", 48), ("rms_norm_ragged", 37)):
        case = cases.case(name)
        x, d_y = cases.random(2, 5, channels, scale=2.0, shift=0.7), cases.random(2, 5, channels)
        w, into = cases.random(channels, scale=0.3, shift=1.0), cases.random(channels)
        rstd = torch.rsqrt((x * x).mean(-1) + 1e-5)
        y = w * (x * rstd[..., None])
        d_x, d_w = gradients(y, d_y, x, w)
        case.put(x=x, w=w, y=y, rstd=rstd, d_y=d_y, d_x=d_x, d_w=d_w, into=into, d_w_sum=into + d_w)
        case.call("rms_norm", "x w", "y rstd", {"eps": 1e-5})
        case.call("rms_norm_dx", "d_y x w rstd", "d_x")
        case.call("rms_norm_dweight", "d_y x rstd", "d_w")
        case.call("rms_norm_dweight", "d_y x rstd into", "d_w_sum", {"accumulate": 1})

    case = cases.case("rms_norm_bf16")
    x, w = cases.random(2, 5, 48, scale=2.0).bfloat16(), cases.random(48, scale=0.3, shift=1.0).bfloat16()
    module = LlamaRMSNorm(48, eps=1e-5)
    module.weight.data = w.detach()
    case.put(x=x, w=w, y=module(x), rstd=torch.rsqrt(x.double().pow(2).mean(-1) + 1e-5))
    case.call("rms_norm", "x w", "y rstd", {"eps": 1e-5}, "bf16")


ROPE_TYPES = {
    "default": {},
    "linear": {"factor": 4.0},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": 1},
    "yarn_given": {"factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 8.0, "beta_slow": 2.0,
                   "attention_factor": 1.25, "truncate": 0},
}


def rotary(cases):
    batch, length, heads, head_dim, theta = 2, 11, 2, 16, 10000.0
    positions = torch.stack([torch.arange(length), torch.cat([torch.arange(5), torch.arange(length - 5)]) + 100])
    for name, keys in ROPE_TYPES.items():
        kind = name.removesuffix("_given")
        case = cases.case(f"rotary_{name}")
        rope = {"rope_type": kind, "rope_theta": theta} | keys
        if "truncate" in rope:
            rope["truncate"] = bool(rope["truncate"])
        config = LlamaConfig(hidden_size=heads * head_dim, num_attention_heads=heads, head_dim=head_dim,
                             max_position_embeddings=256, rope_parameters=rope)
        compute = (LlamaRotaryEmbedding.compute_default_rope_parameters if kind == "default" else ROPE_INIT_FUNCTIONS[kind])
        inverse_frequencies, attention_factor = compute(config)
        angles = positions[..., None].double() * inverse_frequencies.double()
        cos, sin = angles.cos() * attention_factor, angles.sin() * attention_factor
        x, d_y = cases.random(batch, length, heads * head_dim), cases.random(batch, length, heads * head_dim)
        by_head = x.view(batch, length, heads, head_dim).transpose(1, 2)
        y, _ = apply_rotary_pos_emb(by_head, by_head, torch.cat([cos, cos], -1), torch.cat([sin, sin], -1))
        y = y.transpose(1, 2).reshape(batch, length, heads * head_dim)
        (d_x,) = gradients(y, d_y, x)
        case.put(positions=positions, inverse_frequencies=inverse_frequencies,
                 attention_factor=torch.tensor([attention_factor], dtype=torch.float64), cos=cos, sin=sin, x=x, y=y, d_y=d_y,
                 d_x=d_x)
        attributes = {"head_dim": head_dim, "type": kind, "theta": theta} | keys
        if kind == "yarn":
            attributes["attention_factor"] = float(attention_factor)
        case.call("rotary_table", "positions", "cos sin", attributes)
        case.call("rotary", "x cos sin", "y", {"heads": heads, "inverse": 0})
        case.call("rotary", "d_y cos sin", "d_x", {"heads": heads, "inverse": 1})


def philox4x32(counter, key):
    """Philox4x32-10 (Salmon et al. 2011), vectorised over counters of shape (N,4); key of two words."""
    counter = [word.astype(numpy.uint64) for word in numpy.asarray(counter, dtype=numpy.uint64).T]
    key = [int(word) for word in key]
    low = numpy.uint64(0xFFFFFFFF)
    for _ in range(10):
        first, second = counter[0] * numpy.uint64(0xD2511F53), counter[2] * numpy.uint64(0xCD9E8D57)
        counter = [(second >> numpy.uint64(32)) ^ counter[1] ^ numpy.uint64(key[0]), second & low,
                   (first >> numpy.uint64(32)) ^ counter[3] ^ numpy.uint64(key[1]), first & low]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return numpy.stack(counter, axis=-1).astype(numpy.uint32)


def check_philox():
    """The generator's published known answers (Random123, kat_vectors), so that no wrong mask is ever written."""
    pi = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0]
    for counter, key, answer in (
            ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
            ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
            (pi[:4], pi[4:], [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1])):
        if philox4x32([counter], key)[0].tolist() != answer:
            raise RuntimeError("Philox4x32-10 does not give its known answers")


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def keep_mask(randomness, stream, probability, elements):
    """Which of a sample's elements dropout keeps: docs/operations.md, "Randomness"."""
    seed_low, seed_high, update, sample = (int(word) for word in randomness)
    quads = numpy.arange((elements + 3) // 4, dtype=numpy.uint64)
    counter = numpy.stack([quads & numpy.uint64(0xFFFFFFFF), quads >> numpy.uint64(32),
                           numpy.full_like(quads, update), numpy.full_like(quads, sample)], axis=-1)
    words = philox4x32(counter, [seed_low ^ (stream & 0xFFFFFFFF), seed_high ^ (stream >> 32)]).reshape(-1)[:elements]
    return torch.from_numpy(words >= round(probability * 2**32))


def signed(value):
    return value - 2**64 if value >= 2**63 else value


RANDOMNESS = torch.tensor([[1234, 7, 3, 40], [1234, 7, 3, 41]], dtype=torch.uint32)


def dropout(cases):
    check_philox()
    case = cases.case("dropout")
    x, probability, stream = cases.random(2, 5, 7), 0.3, fnv1a("embedding.dropout")
    keep = torch.stack([keep_mask(row, stream, probability, 35).view(5, 7) for row in RANDOMNESS])
    case.put(x=x, randomness=RANDOMNESS, keep=keep.to(torch.uint8), y=x * keep / (1 - probability))
    case.call("dropout", "x randomness", "y", {"probability": probability, "stream": signed(stream)})


def attention(cases):
    """MHA and GQA, several documents in a window, dropout, the fused layout, and a window longer than a block."""
    for name, batch, length, heads, kv_heads, head_dim, probability in (
            ("attention_mha", 2, 13, 3, 3, 8, 0.0), ("attention_gqa", 2, 23, 4, 2, 6, 0.0),
            ("attention_mqa_odd", 1, 21, 3, 1, 5, 0.0), ("attention_dropout", 2, 13, 2, 1, 8, 0.25),
            ("attention_long", 1, 270, 2, 1, 2, 0.0)):
        case = cases.case(name)
        scale = head_dim**-0.5
        stream = fnv1a("h.0.attention")
        starts = torch.zeros(batch, length, dtype=torch.int64)
        boundaries = {0: [], 1: [3, 4, length // 2]}[batch - 1] if length < 270 else [140, 260]
        for boundary in boundaries:
            starts[-1, boundary:] = boundary
        q, d_y = cases.random(batch, length, heads * head_dim), cases.random(batch, length, heads * head_dim)
        k, v = cases.random(batch, length, kv_heads * head_dim), cases.random(batch, length, kv_heads * head_dim)

        def split(x, count):
            return x.view(batch, length, count, head_dim).transpose(1, 2)

        keys = split(k, kv_heads).repeat_interleave(heads // kv_heads, dim=1)
        values = split(v, kv_heads).repeat_interleave(heads // kv_heads, dim=1)
        i, j = torch.arange(length)[:, None], torch.arange(length)[None, :]
        visible = ((starts[:, :, None] <= j) & (j <= i))[:, None]
        scores = (split(q, heads) @ keys.transpose(-1, -2) * scale).masked_fill(~visible, -torch.inf)
        lse, p = scores.logsumexp(-1), scores.softmax(-1)
        attributes = {"heads": heads, "kv_heads": kv_heads, "scale": scale, "dropout": probability}
        if probability > 0:
            attributes["stream"] = signed(stream)
            keep = torch.stack([keep_mask(row, stream, probability, heads * length * length) for row in RANDOMNESS])
            p = p * keep.view(batch, heads, length, length) / (1 - probability)
        y = (p @ values).transpose(1, 2).reshape(batch, length, heads * head_dim)
        if probability == 0:
            fused = torch.nn.functional.scaled_dot_product_attention(split(q, heads), keys, values, attn_mask=visible)
            assert torch.allclose(fused.transpose(1, 2).reshape_as(y), y, atol=1e-12)
        d_q, d_k, d_v = gradients(y, d_y, q, k, v)
        case.put(q=q, k=k, v=v, document_starts=starts, y=y, lse=lse, d_y=d_y, d_q=d_q, d_k=d_k, d_v=d_v)
        random = ""
        if probability > 0:
            case.put(randomness=RANDOMNESS)
            random = " randomness"
        case.call("attention", "q k v document_starts" + random, "y lse", attributes)
        case.call("attention_backward", "d_y q k v y lse document_starts" + random, "d_q d_k d_v", attributes)
        if name in ("attention_mha", "attention_gqa"):
            case.put(qkv=torch.cat([q, k, v], -1), d_qkv=torch.cat([d_q, d_k, d_v], -1))
            case.call("attention_qkv", "qkv document_starts", "y lse", attributes)
            case.call("attention_qkv_backward", "d_y qkv y lse document_starts", "d_qkv", attributes)


def activations(cases):
    for approximate, hugging_face in (("tanh", "gelu_new"), ("none", "gelu")):
        case = cases.case(f"gelu_{approximate}")
        u, d_h = cases.random(2, 5, 11, scale=2.0), cases.random(2, 5, 11)
        h = torch.nn.functional.gelu(u, approximate=approximate)
        assert torch.allclose(h, ACT2FN[hugging_face](u), atol=1e-9)
        (d_u,) = gradients(h, d_h, u)
        case.put(u=u, h=h, d_h=d_h, d_u=d_u)
        case.call("gelu", "u", "h", {"approximate": approximate})
        case.call("gelu_backward", "d_h u", "d_u", {"approximate": approximate})

    case = cases.case("swiglu")
    gate, up, d_h = cases.random(2, 5, 11, scale=2.0), cases.random(2, 5, 11), cases.random(2, 5, 11)
    h = torch.nn.functional.silu(gate) * up
    d_gate, d_up = gradients(h, d_h, gate, up)
    case.put(gate=gate, up=up, h=h, d_h=d_h, d_gate=d_gate, d_up=d_up)
    case.call("swiglu", "gate up", "h")
    case.call("swiglu_backward", "d_h gate up", "d_gate d_up")
    case = cases.case("swiglu_bf16")
    gate, up = cases.random(2, 5, 11, scale=2.0).bfloat16(), cases.random(2, 5, 11).bfloat16()
    case.put(gate=gate, up=up, h=torch.nn.functional.silu(gate) * up)
    case.call("swiglu", "gate up", "h", {}, "bf16")


def loss(cases):
    batch, length, channels, vocabulary, chunk = 3, 7, 6, 33, 5
    case = cases.case("loss")
    x, w, into = cases.random(batch, length, channels), cases.random(vocabulary, channels), cases.random(vocabulary, channels)
    targets = cases.integers(vocabulary, batch, length)
    targets[0, :4] = IGNORED
    targets[1] = IGNORED
    targets[2, -1] = IGNORED
    targets[2, 0], targets[2, 1] = 0, vocabulary - 1
    inverse_tokens = 1.0 / (targets != IGNORED).sum().double().view(1)
    inverse_tokens = inverse_tokens.float().double()
    logits = x @ w.T
    total = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum")
    value = (total * inverse_tokens).view(1)
    d_logits, d_x, d_w = gradients(value, torch.ones_like(value), logits, x, w)
    position = torch.tensor([4])
    case.put(x=x, w=w, targets=targets, inverse_tokens=inverse_tokens, logits=logits, loss=value, d_logits=d_logits, d_x=d_x,
             d_w=d_w, into=into, d_w_sum=into + d_w, position=position, last_logits=logits[:, 4])
    case.call("head_loss", "x w targets inverse_tokens", "loss", {"chunk": chunk})
    case.call("head_loss_gradient", "x w targets inverse_tokens", "loss d_x d_w", {"chunk": chunk, "dweight": 1})
    case.call("head_loss_gradient", "x w targets inverse_tokens into", "loss d_x d_w_sum",
              {"chunk": chunk, "dweight": 1, "accumulate": 1})
    case.call("head_loss_gradient", "x w targets inverse_tokens", "loss d_x", {"chunk": chunk, "dweight": 0})
    case.call("cross_entropy", "logits targets inverse_tokens", "loss")
    case.call("cross_entropy_backward", "logits targets inverse_tokens", "d_logits")
    case.call("last_logits", "x w position", "last_logits")

    # Logits far from zero: a softmax that does not subtract the maximum overflows here.
    case = cases.case("loss_large")
    logits = cases.random(1, 5, 9, scale=200.0)
    targets = cases.integers(9, 1, 5)
    value = torch.nn.functional.cross_entropy(logits[0], targets[0], reduction="sum") * 0.25
    (d_logits,) = torch.autograd.grad(value, logits)
    case.put(logits=logits, targets=targets, inverse_tokens=torch.tensor([0.25]), loss=value.view(1), d_logits=d_logits)
    case.call("cross_entropy", "logits targets inverse_tokens", "loss")
    case.call("cross_entropy_backward", "logits targets inverse_tokens", "d_logits")


def update(cases):
    """Clipping by the global norm, then AdamW, as torch.nn.utils.clip_grad_norm_ and torch.optim.AdamW do them in float32."""
    learning_rate, beta1, beta2, eps = 1e-2, 0.9, 0.999, 1e-8
    for name, scale in (("clip_active", 3.0), ("clip_idle", 0.01)):
        case = cases.case(name)
        parts = [cases.random(7, 5, scale=scale).detach(), cases.random(11, scale=scale).detach()]
        sums = [(part * part).sum().view(1) for part in parts]
        clipped = [torch.nn.Parameter(torch.zeros_like(part)) for part in parts]
        for parameter, part in zip(clipped, parts):
            parameter.grad = part.clone()
        norm = torch.nn.utils.clip_grad_norm_(clipped, 1.0)
        clip = min(1.0, 1.0 / (norm.item() + 1e-6))
        assert torch.allclose(clipped[0].grad, parts[0] * clip, atol=1e-12)
        hyperparameters = torch.tensor([learning_rate, 1 - beta1, 1 - beta2, 1.0])
        case.put(g_0=parts[0], g_1=parts[1], s_0=sums[0], s_1=sums[1], hyperparameters=hyperparameters,
                 control=torch.tensor([clip, 1.0, norm.item(), -1.0]))
        case.call("sum_squares", "g_0", "s_0")
        case.call("sum_squares", "g_1", "s_1")
        case.call("update_control", "hyperparameters s_0 s_1", "control", {"max_grad_norm": 1.0})

    for name, decay, clip in (("adamw", 0.1, 1.0), ("adamw_no_decay", 0.0, 1.0), ("adamw_clipped", 0.1, 0.25)):
        case = cases.case(name)
        parameter = torch.nn.Parameter(cases.random(6, 7).detach().float())
        optimizer = torch.optim.AdamW([parameter], lr=learning_rate, betas=(beta1, beta2), eps=eps, weight_decay=decay,
                                      foreach=False, fused=False)
        control = torch.tensor([clip, 1.0, 1.0, -1.0])
        case.put(weight_0=parameter, m_0=torch.zeros(6, 7), v_0=torch.zeros(6, 7), control=control,
                 moved=torch.ones(1, dtype=torch.int32))
        for step in (1, 2, 3):
            g = cases.random(6, 7, scale=0.5).detach().float()
            parameter.grad = g * clip
            optimizer.step()
            state = optimizer.state[parameter]
            case.put(**{f"g_{step}": g, f"weight_{step}": parameter, f"m_{step}": state["exp_avg"],
                        f"v_{step}": state["exp_avg_sq"], f"hyperparameters_{step}": torch.tensor(
                            [learning_rate, 1 - beta1**step, 1 - beta2**step, 1.0])})
            case.call("adamw", f"weight_{step - 1} m_{step - 1} v_{step - 1} g_{step} hyperparameters_{step} control",
                      f"weight_{step} m_{step} v_{step} moved",
                      {"beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": decay, "narrow": 0})


def narrowing(cases):
    case = cases.case("narrow_weight")
    bits = numpy.array([0x3F808000, 0x3F818000, 0xBF808000, 0x3F807FFF, 0x3F808001, 0x7F7FFFFF, 0x7F800000, 0xFF800000,
                        0x00008000, 0x80007FFF, 0x00000000, 0x80000000], dtype=numpy.uint32)
    finite = numpy.isfinite(bits.view(numpy.float32))
    narrow = numpy.where(finite, (bits.astype(numpy.uint64) + 0x8000) >> 16, bits >> 16).astype(numpy.uint16)
    case.put(master=torch.from_numpy(bits.view(numpy.float32).copy()),
             w=torch.from_numpy(narrow.view(numpy.int16).copy()).view(torch.bfloat16))
    cases.cases[-1]["calls"].append({"operation": "narrow_weight", "attributes": {}, "inputs": ["master"], "outputs": ["w"],
                                     "tolerance": 0.0})


def mlp(cases):
    """The MLPs of GPT-2 and Llama; 10 rows in chunks of 4, 4 and 2."""
    functional = torch.nn.functional
    for activation, weight, bias in (("gelu_tanh", "io", 1), ("gelu_none", "oi", 0), ("swiglu", "oi", 0)):
        case = cases.case(f"mlp_{activation}")
        shapes = {"up": (11, 6), "down": (6, 11)}
        if activation == "swiglu":
            shapes = {"gate": (11, 6)} | shapes
        x, d_y, parameters, matrix, add = cases.random(2, 5, 6), cases.random(2, 5, 6), {}, {}, {}
        for name, (out, inner) in shapes.items():
            w = parameters[f"w_{name}"] = cases.random(*((out, inner) if weight == "oi" else (inner, out)), scale=0.5)
            matrix[name] = w if weight == "oi" else w.T
            if bias:
                add[name] = parameters[f"bias_{name}"] = cases.random(out)
        product = lambda name, value: functional.linear(value, matrix[name], add.get(name))
        if activation == "swiglu":
            h = functional.silu(product("gate", x)) * product("up", x)
        else:
            h = functional.gelu(product("up", x), approximate=activation.removeprefix("gelu_"))
        y = product("down", h)
        made = gradients(y, d_y, x, *parameters.values())
        into = {name: cases.random(*value.shape) for name, value in parameters.items()}
        case.put(x=x, y=y, d_y=d_y, d_x=made[0], **parameters)
        for (name, accumulator), gradient in zip(into.items(), made[1:]):
            case.put(**{f"d_{name}": gradient, f"into_{name}": accumulator, f"d_{name}_sum": accumulator + gradient})
        names = list(parameters)
        attributes = {"activation": activation, "weight": weight, "bias": bias, "chunk": 4}
        every = attributes | {"gradients": 2 ** (1 + len(names)) - 1}
        case.call("mlp", " ".join(["x"] + names), "y", attributes)
        case.call("mlp_gradient", " ".join(["d_y", "x"] + names), " ".join(["d_x"] + [f"d_{name}" for name in names]), every)
        case.call("mlp_gradient", " ".join(["d_y", "x"] + names + [f"into_{name}" for name in names]),
                  " ".join(["d_x"] + [f"d_{name}_sum" for name in names]), every | {"accumulate": 1})


def write(directory):
    cases = Cases()
    for make in (embedding, add, linear, layer_norm, rms_norm, rotary, attention, activations, dropout, loss, update, narrowing,
                 mlp):
        make(cases)
    for case in cases.cases:
        for call in case["calls"]:
            for name in call["inputs"] + call["outputs"]:
                if f"{case['case']}.{name}" not in cases.tensors:
                    raise RuntimeError(f"{case['case']}: {call['operation']} names the missing tensor {name}")
    path = directory / "operations.safetensors"
    save_file(cases.tensors, path)
    lines = ",\n".join(
        '    {"case": %s, "calls": [\n      %s]}' % (json.dumps(case["case"]), ",\n      ".join(map(json.dumps, case["calls"])))
        for case in cases.cases)
    (directory / "operations.json").write_text('{\n  "format": 1,\n  "cases": [\n' + lines + "\n  ]\n}\n")
    calls = sum(len(case["calls"]) for case in cases.cases)
    print(f"operations: {len(cases.cases)} cases, {calls} calls, {path.stat().st_size / 1024:.0f} KiB")
    assert math.isfinite(sum(t.double().abs().sum().item() for n, t in cases.tensors.items() if "narrow" not in n
                             and t.dtype not in (torch.uint32,)))

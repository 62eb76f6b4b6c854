#!/usr/bin/env python3
"""Makes tests/fixtures with PyTorch and transformers: tiny models, ten AdamW steps, gradients, and single operations.

Deterministic: one thread, fixed seeds; the same versions on the same processor write the same bytes. README.md beside this
file documents every tensor. Usage: make_fixtures.py [--out DIR] [NAME ...]
"""

import argparse
import copy
import json
import pathlib
import shutil
import zlib
from dataclasses import dataclass, field

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import operation_cases

LENGTH = 32
LEARNING_RATE = 1e-3
BETAS = (0.9, 0.999)
EPSILON = 1e-8
WEIGHT_DECAY = 0.1
IGNORED = -100


@dataclass
class Fixture:
    """One model fixture: how its model is built, how its directory differs from save_pretrained's, how it is trained."""

    name: str
    about: str
    config: object
    batch: int
    steps: int = 10
    max_grad_norm: float = 1.0
    # Final weights and gradients of every parameter; off for fixtures that only check loading.
    with_weights: bool = True
    # Called with the directory after save_pretrained, to rewrite it into the form the fixture is about.
    rewrite: object = None
    # How a parameter of the model is named in the fixture's file.
    file_name: object = field(default=lambda name: name)


def gpt2_config(**changes):
    options = dict(
        vocab_size=257, n_positions=64, n_embd=48, n_layer=2, n_head=4, activation_function="gelu_new",
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=256, eos_token_id=256,
    )
    return GPT2Config(**(options | changes))


def llama_config(**changes):
    options = dict(
        vocab_size=257, hidden_size=48, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=1e-5, bos_token_id=256, eos_token_id=256,
    )
    return LlamaConfig(**(options | changes))


def tiny_llama_config(**changes):
    options = dict(
        vocab_size=61, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, bos_token_id=60, eos_token_id=60, tie_word_embeddings=True,
    )
    return llama_config(**(options | changes))


def read_config(directory):
    return json.loads((directory / "config.json").read_text())


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def rope_as_scaling(directory, type_key):
    """Rewrites `rope_parameters` into the older pair `rope_theta` + `rope_scaling`, whose type is under `type_key`."""
    config = read_config(directory)
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type")
    config["rope_scaling"] = None if kind == "default" else {type_key: kind, **rope}
    config["torch_dtype"] = config.pop("dtype")
    write_json(directory / "config.json", config)


def llama3_form(directory):
    rope_as_scaling(directory, "rope_type")
    config = read_config(directory)
    del config["head_dim"]  # older files: hidden_size / num_attention_heads
    write_json(directory / "config.json", config)


def linear_form(directory):
    rope_as_scaling(directory, "type")


def gpt2_hub_form(directory):
    """As the `gpt2` file on the hub: no `transformer.` prefix, and the attention's mask buffers among the weights."""
    path = directory / "model.safetensors"
    tensors = {name.removeprefix("transformer."): tensor for name, tensor in load_file(path).items()}
    config = read_config(directory)
    positions = config["n_positions"]
    for block in range(config["n_layer"]):
        mask = torch.tril(torch.ones(positions, positions)).view(1, 1, positions, positions)
        tensors[f"h.{block}.attn.bias"] = mask.clone()
        tensors[f"h.{block}.attn.masked_bias"] = torch.tensor(-1e4)  # older files; rank 0
    save_file(tensors, path, metadata={"format": "pt"})
    # The hub's config.json predates most of today's keys.
    kept = ["architectures", "model_type", "activation_function", "attn_pdrop", "embd_pdrop", "resid_pdrop", "n_embd",
            "n_head", "n_inner", "n_layer", "n_positions", "layer_norm_epsilon", "vocab_size", "bos_token_id",
            "eos_token_id", "initializer_range"]
    write_json(directory / "config.json", {key: config[key] for key in kept} | {"n_ctx": positions})


def llama_sharded_form(directory):
    """bf16 weights in two shards with an index, the older RoPE keys, and a leftover `rotary_emb.inv_freq` buffer."""
    rope_as_scaling(directory, "rope_type")
    path = directory / "model.safetensors"
    tensors = load_file(path)
    path.unlink()
    names = sorted(tensors)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.tensor([1.0, 0.1, 0.01, 0.001])
    half = len(names) // 2
    shards = {
        "model-00001-of-00002.safetensors": names[:half] + ["model.layers.0.self_attn.rotary_emb.inv_freq"],
        "model-00002-of-00002.safetensors": names[half:],
    }
    index = {"metadata": {"total_size": sum(t.numel() * t.element_size() for t in tensors.values())}, "weight_map": {}}
    for shard, members in shards.items():
        save_file({name: tensors[name] for name in members}, directory / shard, metadata={"format": "pt"})
        index["weight_map"] |= {name: shard for name in members}
    index["weight_map"] = dict(sorted(index["weight_map"].items()))
    write_json(directory / "model.safetensors.index.json", index)


def gpt2_both_heads_form(directory):
    """A tied model whose file holds the table a second time as `lm_head.weight`."""
    path = directory / "model.safetensors"
    tensors = load_file(path)
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"].clone()
    save_file(tensors, path, metadata={"format": "pt"})


FIXTURES = [
    Fixture("gpt2_tied", "GPT-2, as save_pretrained writes it", gpt2_config(), batch=2),
    Fixture("llama_gqa_tied", "Llama, grouped-query, tied head, head_dim 16 apart from hidden/heads = 12, RoPE default",
            llama_config(head_dim=16, tie_word_embeddings=True,
                         rope_parameters={"rope_type": "default", "rope_theta": 10000.0}), batch=3),
    Fixture("llama_gqa_untied", "Llama, grouped-query, untied head, RoPE llama3 as rope_theta + rope_scaling, no head_dim key",
            llama_config(tie_word_embeddings=False, intermediate_size=82, max_position_embeddings=512,
                         rope_parameters={"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0,
                                          "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                          "original_max_position_embeddings": 64}),
            batch=3, rewrite=llama3_form),
    Fixture("llama_linear", "tiny Llama, RoPE linear as rope_scaling {type, factor}",
            tiny_llama_config(rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}),
            batch=2, with_weights=False, rewrite=linear_form),
    Fixture("llama_yarn", "tiny Llama, RoPE yarn as rope_parameters, head_dim 16 apart from hidden/heads = 8",
            tiny_llama_config(head_dim=16,
                              rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                                               "original_max_position_embeddings": 32}),
            batch=2, with_weights=False),
    Fixture("gpt2_hub", "tiny GPT-2 in the hub's old form: no prefix, mask buffers, short config.json; exact gelu, n_inner 40",
            gpt2_config(vocab_size=61, n_positions=32, n_embd=16, n_head=2, n_inner=40, activation_function="gelu",
                        bos_token_id=60, eos_token_id=60),
            batch=2, with_weights=False, rewrite=gpt2_hub_form,
            file_name=lambda name: name.removeprefix("transformer.")),
    Fixture("gpt2_both_heads", "tiny tied GPT-2 whose file also holds lm_head.weight, equal to the table; some steps not clipped",
            gpt2_config(vocab_size=61, n_positions=32, n_embd=16, n_layer=1, n_head=2, bos_token_id=60, eos_token_id=60),
            batch=2, max_grad_norm=2.0, with_weights=False, rewrite=gpt2_both_heads_form),
    Fixture("llama_sharded", "tiny untied Llama: bf16 weights in two shards with an index, rope_theta 1e5, old inv_freq buffer",
            tiny_llama_config(tie_word_embeddings=False, rope_parameters={"rope_type": "default", "rope_theta": 100000.0}),
            batch=2, with_weights=False, rewrite=llama_sharded_form),
]


def initialise(model, seed):
    """Weights of a trained model's size, so that every term of every gradient matters: nothing is left at 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() >= 2:
                parameter.copy_(noise * (0.3 if "wte" in name or "embed" in name else 1.2 * parameter.shape[-1] ** -0.5))
            elif name.endswith("bias"):
                parameter.copy_(noise * 0.1)
            else:
                parameter.copy_(1.0 + noise * 0.2)


def make_batches(seed, steps, batch, vocabulary):
    """Tokens (steps,B,T) with a learnable rule, and targets: the next token, some ignored, unevenly over the samples."""
    generator = torch.Generator().manual_seed(seed)
    stream = torch.randint(vocabulary, (steps, batch, LENGTH + 1), generator=generator, dtype=torch.int64)
    for position in range(1, LENGTH + 1):
        follows = (stream[:, :, position - 1] * 7 + 3) % vocabulary
        keep_rule = torch.rand((steps, batch), generator=generator) < 0.7
        stream[:, :, position] = torch.where(keep_rule, follows, stream[:, :, position])
    tokens, targets = stream[:, :, :-1].clone(), stream[:, :, 1:].clone()
    targets[torch.rand(targets.shape, generator=generator) < 0.1] = IGNORED
    targets[:, 0, :9] = IGNORED  # a masked prompt
    targets[:, -1, -13:] = IGNORED  # padding at the end of a short last sample
    return tokens, targets


def supervised_loss(model, tokens, targets):
    """Sum over supervised tokens / their number in the batch, in float32 at least."""
    logits = model(input_ids=tokens, use_cache=False).logits
    logits = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
    total = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum")
    return total / (targets != IGNORED).sum(), logits


def decays(parameter):
    return parameter.dim() >= 2


def train(model, tokens, targets, max_grad_norm, autocast=None):
    """Ten AdamW steps; returns losses, gradient norms, first gradients, first logits; the model holds the final weights.

    `autocast`: a type to run the forward in, float16 with a loss scale."""
    parameters = dict(model.named_parameters())
    groups = [
        {"params": [p for p in parameters.values() if decays(p)], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in parameters.values() if not decays(p)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=BETAS, eps=EPSILON, foreach=False, fused=False)
    scaler = torch.amp.GradScaler("cpu", init_scale=4096.0, enabled=autocast == torch.float16)
    losses, norms, gradients, first_logits = [], [], None, None
    model.train()
    for step in range(tokens.shape[0]):
        with torch.autocast("cpu", dtype=autocast or torch.bfloat16, enabled=autocast is not None):
            loss, logits = supervised_loss(model, tokens[step], targets[step])
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        if step == 0:
            first_logits = logits[0, :4].detach().float().clone()
            gradients = {name: p.grad.detach().float().clone() for name, p in parameters.items()}
        norms.append(torch.nn.utils.clip_grad_norm_(parameters.values(), max_grad_norm).item())
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses, norms, gradients, first_logits


def make(fixture, root):
    directory = root / fixture.name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    seed = zlib.crc32(fixture.name.encode())

    kind = GPT2LMHeadModel if fixture.config.model_type == "gpt2" else LlamaForCausalLM
    model = kind(copy.deepcopy(fixture.config))
    initialise(model, seed)
    if fixture.name == "llama_sharded":
        model = model.bfloat16()
    model.save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)
    if fixture.rewrite:
        fixture.rewrite(directory)

    # Train what transformers reads back from the fixture's directory, so that the rewritten form is checked too.
    def load(dtype):
        loaded, report = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, output_loading_info=True)
        if report["missing_keys"] or report["mismatched_keys"]:
            raise RuntimeError(f"{fixture.name}: transformers does not read the fixture back: {report}")
        for (name, made), read in zip(model.named_parameters(), loaded.parameters(), strict=True):
            if not torch.equal(made.to(dtype), read):
                raise RuntimeError(f"{fixture.name}: {name} differs after reading back")
        return loaded

    tokens, targets = make_batches(seed + 1, fixture.steps, fixture.batch, fixture.config.vocab_size)
    trained = load(torch.float32)
    parameter_count = sum(p.numel() for p in trained.parameters())
    losses, norms, gradients, logits = train(trained, tokens, targets, fixture.max_grad_norm)
    exact = load(torch.float64)
    losses_f64, norms_f64, gradients_f64, _ = train(exact, tokens, targets, fixture.max_grad_norm)
    bf16_losses, _, _, _ = train(load(torch.float32), tokens, targets, fixture.max_grad_norm, autocast=torch.bfloat16)
    fp16_losses, _, _, _ = train(load(torch.float32), tokens, targets, fixture.max_grad_norm, autocast=torch.float16)

    expected = {
        "losses": torch.tensor(losses, dtype=torch.float64),
        "losses_f64": torch.tensor(losses_f64, dtype=torch.float64),
        "bf16_losses": torch.tensor(bf16_losses, dtype=torch.float64),
        "fp16_losses": torch.tensor(fp16_losses, dtype=torch.float64),
        "grad_norms": torch.tensor(norms, dtype=torch.float64),
        "logits": logits,
    }
    if fixture.with_weights:
        for name, parameter in trained.named_parameters():
            expected["grad." + fixture.file_name(name)] = gradients[name]
            expected["final." + fixture.file_name(name)] = parameter.detach().clone()
    save_file(expected, directory / "expected.safetensors")
    save_file({"tokens": tokens.int(), "targets": targets.int()}, directory / "batch.safetensors")
    write_json(directory / "expected.json", {
        "about": fixture.about,
        "made_with": {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__},
        "steps": fixture.steps, "batch": fixture.batch, "length": LENGTH, "learning_rate": LEARNING_RATE,
        "adam_beta1": BETAS[0], "adam_beta2": BETAS[1], "adam_epsilon": EPSILON, "weight_decay": WEIGHT_DECAY,
        "max_grad_norm": fixture.max_grad_norm, "parameters": parameter_count,
        "supervised_tokens": [int(n) for n in (targets != IGNORED).sum(dim=(1, 2))],
        "decayed": sorted(fixture.file_name(n) for n, p in trained.named_parameters() if decays(p)),
        "not_decayed": sorted(fixture.file_name(n) for n, p in trained.named_parameters() if not decays(p)),
    })

    # How well-conditioned the fixture is: float32's own distance from float64, which a test's tolerance must leave room for.
    loss_gap = max(abs(a - b) / abs(b) for a, b in zip(losses, losses_f64))
    norm_gap = max(abs(a - b) / abs(b) for a, b in zip(norms, norms_f64))
    bf16_gap = max(abs(a - b) / abs(b) for a, b in zip(bf16_losses, losses))
    gradient_gap = max(((gradients[n] - g).abs().max() / g.abs().max()).item() for n, g in gradients_f64.items())
    # The key part of GPT-2's attention bias has a gradient of exactly zero: Adam turns its rounding noise into whole steps.
    exact_weights = dict(exact.named_parameters())
    weight_gaps = {n: ((p - exact_weights[n]).abs().max() / exact_weights[n].abs().max()).item()
                   for n, p in trained.named_parameters() if not n.endswith("c_attn.bias")}
    worst = max(weight_gaps, key=weight_gaps.get)
    size = sum(path.stat().st_size for path in directory.iterdir())
    print(f"{fixture.name}: {parameter_count} parameters, {size / 1024:.0f} KiB; loss {losses[0]:.4f} → {losses[-1]:.4f}, "
          f"norms {min(norms):.2f}–{max(norms):.2f}; float32 against float64: losses {loss_gap:.1e}, norms {norm_gap:.1e}, "
          f"gradients {gradient_gap:.1e}, final weights {weight_gaps[worst]:.1e} ({worst}); bf16 autocast against float32: losses {bf16_gap:.1e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures")
    parser.add_argument("names", nargs="*", help="fixtures to make; default all, and `operations`")
    arguments = parser.parse_args()
    known = [fixture.name for fixture in FIXTURES] + ["operations"]
    for name in arguments.names:
        if name not in known:
            parser.error(f"unknown fixture {name}; known: {', '.join(known)}")

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for fixture in FIXTURES:
        if not arguments.names or fixture.name in arguments.names:
            make(fixture, arguments.out)
    if not arguments.names or "operations" in arguments.names:
        operation_cases.write(arguments.out)


if __name__ == "__main__":
    main()

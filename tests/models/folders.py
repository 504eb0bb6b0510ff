"""Makes folders of each architecture that lm.h reads, small and with random weights, and what the package transformers computes of them.

    folders.py FOLDER

Each folder has expected.safetensors: `tokens` [n] and the `logits` [n, vocab] of every position, and of a batch that trains `batch`,
`labels` [rows, columns] with -1 for those that do not count, their mean `loss`, and two parameters after a step of plain gradient
descent (`rate`). build/release/tests/test_lm compares with them.
"""
import json
import os
import pathlib
import shutil
import sys
import warnings

import gguf
import numpy as np

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config, SmolLM3Config

warnings.filterwarnings("ignore")
TOKENS, ROWS, COLUMNS, RATE = 40, 2, 24, 0.5
SIZES = dict(hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48, vocab_size=96,
             max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
LLAMA31 = LLAMA3 | dict(rope_theta=500000.0, original_max_position_embeddings=8192) # rope_freqs.weight of GGUF files is of these positions
GPT2 = dict(n_embd=32, n_layer=3, n_head=4, n_positions=64, vocab_size=96, bos_token_id=1, eos_token_id=2, resid_pdrop=0, embd_pdrop=0,
            attn_pdrop=0)
CONFIGS = {
    "llama": LlamaConfig(**SIZES),
    "llama-tied": LlamaConfig(**SIZES | dict(tie_word_embeddings=True, num_key_value_heads=4)),
    "llama-biases": LlamaConfig(**SIZES | dict(attention_bias=True, mlp_bias=True, head_dim=16, hidden_act="gelu")),
    "llama3": LlamaConfig(**SIZES, rope_parameters=LLAMA3),
    "llama31": LlamaConfig(**SIZES, rope_parameters=LLAMA31),
    "llama-linear": LlamaConfig(**SIZES, rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)),
    "llama-shards": LlamaConfig(**SIZES),
    "mistral": MistralConfig(**SIZES, sliding_window=7),
    "mistral-whole": MistralConfig(**SIZES, sliding_window=None),
    "qwen2": Qwen2Config(**SIZES),
    "qwen2-windows": Qwen2Config(**SIZES, use_sliding_window=True, max_window_layers=1, sliding_window=6),
    "qwen3": Qwen3Config(**SIZES, head_dim=16),
    "qwen3-tied": Qwen3Config(**SIZES, head_dim=8, attention_bias=True, tie_word_embeddings=True),
    "smollm3": SmolLM3Config(**SIZES, no_rope_layers=[1, 0, 1]),
    "gpt2": GPT2Config(**GPT2),
    "gpt2-untied": GPT2Config(**GPT2 | dict(tie_word_embeddings=False, n_inner=40, activation_function="gelu")),
    "gpt2-bf16": GPT2Config(**GPT2),
    "llama-bf16": LlamaConfig(**SIZES),
}


def widen(model):
    """Norms and biases begin as ones and zeros, which would hide a mistake; and weights of 0.02 give flat logits."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.add_(torch.randn_like(p) * (0.2 if p.dim() == 1 else 0.15))


def train(model, expected):
    """One step of gradient descent on a batch whose prompts do not count."""
    batch = torch.randint(3, 96, (ROWS, COLUMNS + 1))
    labels = batch[:, 1:].clone()
    labels[0, :7], labels[1, :15] = -1, -1
    logits = model(batch[:, :-1].contiguous()).logits.float()
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 96), labels.reshape(-1), ignore_index=-1)
    loss.backward()
    expected.update(batch=batch[:, :-1].int().contiguous(), labels=labels.int().contiguous(), loss=loss.detach().reshape(1))
    for name, p in model.named_parameters():
        if ".1." in name and ("q_proj.weight" in name or "c_attn.weight" in name) or "embed_tokens" in name or "wte" in name:
            expected["after:" + name] = (p - RATE * p.grad).detach().contiguous()
    expected["rate"] = torch.tensor([RATE])


def older(folder):
    """config.json as it was before transformers 5."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope | {"type": rope["rope_type"]} if rope["rope_type"] != "default" else None
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config))


def make(folder, name, config):
    torch.manual_seed(sum(name.encode()))
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    widen(model)
    if name.endswith("bf16"):
        model.bfloat16().save_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    else:
        model.save_pretrained(folder, max_shard_size="20KB" if "shards" in name else "5GB")
    tokens = torch.randint(3, 96, (1, TOKENS))
    with torch.no_grad():
        expected = dict(tokens=tokens[0].int(), logits=model(tokens).logits[0].float().contiguous())
    train(model, expected)
    save_file(expected, folder / "expected.safetensors")
    return model, expected


# ---- GGUF ----

PARTS = {"embed_tokens": "token_embd", "wte": "token_embd", "wpe": "position_embd", "norm": "output_norm", "ln_f": "output_norm",
         "lm_head": "output", "input_layernorm": "attn_norm", "ln_1": "attn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "attn.c_attn": "attn_qkv", "self_attn.o_proj": "attn_output",
         "attn.c_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "post_attention_layernorm": "ffn_norm", "ln_2": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.c_fc": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.c_proj": "ffn_down"}


def called(name):
    """model.layers.1.self_attn.q_proj.weight is blk.1.attn_q.weight."""
    parts = name.removeprefix("model.").removeprefix("transformer.").split(".")
    block = f"blk.{parts[1]}." if parts[0] in ("layers", "h") else ""
    return block + PARTS[".".join(parts[2 if block else 0:-1])] + "." + parts[-1]


def stored(name, value, config):
    """GGUF turns neighbours of a Llama's heads, so their rows are in another order; and it has every weight as [out, in]."""
    value = value.detach().numpy()
    heads = {"q_proj": config.num_attention_heads, "k_proj": getattr(config, "num_key_value_heads", 0)}
    for part, count in heads.items():
        if config.model_type in ("llama", "mistral") and part in name:
            value = value.reshape(count, 2, -1, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)
    conv = config.model_type == "gpt2" and value.ndim == 2 and ".h." in name
    return np.ascontiguousarray(value.T if conv else value)


def write_gguf(path, name, config, model):
    architecture = {"mistral": "llama"}.get(config.model_type, config.model_type)
    w = gguf.GGUFWriter(path, architecture)
    w.add_block_count(config.num_hidden_layers)
    w.add_embedding_length(config.hidden_size)
    w.add_head_count(config.num_attention_heads)
    w.add_context_length(config.max_position_embeddings)
    w.add_feed_forward_length(getattr(config, "intermediate_size", 4 * config.hidden_size))
    if architecture == "gpt2":
        w.add_layer_norm_eps(config.layer_norm_epsilon)
    else:
        w.add_head_count_kv(config.num_key_value_heads)
        w.add_layer_norm_rms_eps(config.rms_norm_eps)
        w.add_rope_freq_base(config.rope_parameters["rope_theta"])
        head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        w.add_key_length(head)
        w.add_value_length(head)
    if name == "llama31":
        w.add_tensor("rope_freqs.weight", (LLAMA31["rope_theta"] ** (-torch.arange(0, head, 2) / head) /
                                           model.model.rotary_emb.inv_freq).numpy())
    for key, value in model.named_parameters():
        w.add_tensor(called(key), stored(key, value, config))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def make_gguf(folder, name, config, model, expected):
    folder.mkdir()
    write_gguf(folder / "model.gguf", name, config, model)
    renamed = {}
    for key, value in expected.items():
        own = key.removeprefix("after:")
        renamed["after:" + called(own) if own != key else key] = torch.from_numpy(stored(own, value, config)) if own != key else value
    save_file(renamed, folder / "expected.safetensors")


def main():
    torch.set_num_threads(1)
    root = pathlib.Path(sys.argv[1])
    shutil.rmtree(root, ignore_errors=True)
    for name, config in CONFIGS.items():
        made = make(root / name, name, config)
        if name in ("llama", "llama31", "mistral-whole", "qwen2", "qwen3", "gpt2"):
            make_gguf(root / f"{name}-gguf", name, config, *made)
    for name in ("llama", "llama3", "llama-linear"):
        shutil.copytree(root / name, root / f"{name}-older")
        older(root / f"{name}-older")
    bare = root / "gpt2-bare"  # as OpenAI's files: no prefix, and buffers among the tensors
    shutil.copytree(root / "gpt2", bare)
    with safe_open(bare / "model.safetensors", "pt") as f:
        tensors = {k.removeprefix("transformer."): f.get_tensor(k) for k in f.keys()}
    tensors |= {f"h.{i}.attn.bias": torch.ones(1, 1, 64, 64) for i in range(3)}
    save_file(tensors, bare / "model.safetensors")
    with safe_open(bare / "expected.safetensors", "pt") as f:
        expected = {k.replace("after:transformer.", "after:"): f.get_tensor(k) for k in f.keys()}
    save_file(expected, bare / "expected.safetensors")


main()

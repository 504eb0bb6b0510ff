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
GPT2 = dict(n_embd=32, n_layer=3, n_head=4, n_positions=64, vocab_size=96, bos_token_id=1, eos_token_id=2, resid_pdrop=0, embd_pdrop=0,
            attn_pdrop=0)
CONFIGS = {
    "llama": LlamaConfig(**SIZES),
    "llama-tied": LlamaConfig(**SIZES | dict(tie_word_embeddings=True, num_key_value_heads=4)),
    "llama-biases": LlamaConfig(**SIZES | dict(attention_bias=True, mlp_bias=True, head_dim=16, hidden_act="gelu")),
    "llama3": LlamaConfig(**SIZES, rope_parameters=LLAMA3),
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
    half = name.endswith("bf16")
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    widen(model)
    if half:
        model = model.bfloat16()
    model.save_pretrained(folder, max_shard_size="20KB" if "shards" in name else "5GB")
    model = model.float()
    tokens = torch.randint(3, 96, (1, TOKENS))
    with torch.no_grad():
        expected = dict(tokens=tokens[0].int(), logits=model(tokens).logits[0].float().contiguous())
    train(model, expected)
    save_file(expected, folder / "expected.safetensors")


def main():
    torch.set_num_threads(1)
    root = pathlib.Path(sys.argv[1])
    shutil.rmtree(root, ignore_errors=True)
    for name, config in CONFIGS.items():
        make(root / name, name, config)
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

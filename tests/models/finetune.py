"""Fine-tuning by `weir-gpt --model ... --chat`, beside torch with the package peft: the same losses from the same start, adapters that the
other side opens, whole training, and merged weights.

    finetune.py BIN FOLDER [FILE.gguf]

Conversations are made here, as are the models: small, with random weights and a tokenizer of bytes. With a GGUF file of a Llama an adapter
that weir trains beside it has to give the same loss beside the weights that transformers reads from it, where rows of q and k lie in
another order.
"""
import json
import math
import pathlib
import shutil
import subprocess
import sys
import warnings

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, PreTrainedTokenizerFast, Qwen2Config

warnings.filterwarnings("ignore")
BIN, PLACE = sys.argv[1], pathlib.Path(sys.argv[2])
STEPS, BATCH, SEQ, RATE = 6, 8, 48, 0.01
TEMPLATE = """{% for message in messages %}<|im_start|>{{ message['role'] }}
{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] }}<|im_end|>{% endgeneration %}
{% else %}{{ message['content'] }}<|im_end|>
{% endif %}{% endfor %}"""
SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48, vocab_size=264,
             max_position_embeddings=64, pad_token_id=0, bos_token_id=256, eos_token_id=257)
MODELS = {
    "llama": (LlamaConfig(**SIZES), ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]),
    "qwen2": (Qwen2Config(**SIZES, tie_word_embeddings=True), ["q_proj", "v_proj"]),
    "gpt2": (GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64, vocab_size=264, bos_token_id=256, eos_token_id=257, resid_pdrop=0,
                        embd_pdrop=0, attn_pdrop=0), ["c_attn", "c_fc"]),
}
failed = 0


def check(ok, what):
    global failed
    failed += not ok
    if not ok:
        print("finetune: FAILED:", what)


def tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    t = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.add_special_tokens([AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True)])
    return PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<|im_end|>", chat_template=TEMPLATE)


def talks():
    """As many as a batch has, so that each step sees all of them, in whatever order; one is longer than SEQ."""
    words = "red green blue seven eight nine north south east west".split()
    return [{"messages": [{"role": "system", "content": "Short."}] * (i % 2) + [
        {"role": "user", "content": words[i]}, {"role": "assistant", "content": " ".join(words[i + 1:i + 2 + (i == 5) * 7])}]} for i in range(BATCH)]


def batch_of(t, all_talks):
    ids, labels = torch.zeros(BATCH, SEQ, dtype=torch.long), torch.full((BATCH, SEQ), -100)
    for row, talk in enumerate(all_talks):
        got = t.apply_chat_template(talk["messages"], return_assistant_tokens_mask=True, return_dict=True)
        for i, (token, said) in enumerate(zip(got["input_ids"], got["assistant_masks"])):
            if i < SEQ:
                ids[row, i] = token
            if 0 < i <= SEQ and said:
                labels[row, i - 1] = token
    return ids, labels


def loss_of(model, ids, labels):
    return torch.nn.functional.cross_entropy(model(input_ids=ids).logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


def train(model, ids, labels, decay):
    """As apps/weir-gpt/finetune.c: half a cosine to a tenth, gradients clipped to 1."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in parameters if p.dim() > 1], "weight_decay": decay},
              {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]
    optimizer, losses = torch.optim.AdamW(groups, lr=RATE), []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = RATE / 10 + RATE * 0.9 * 0.5 * (1 + math.cos(math.pi * step / STEPS))
        optimizer.zero_grad()
        loss = loss_of(model, ids, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def weir(name, *options):
    result = subprocess.run([f"{BIN}/{name}", *map(str, options)], capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"finetune: {name} {' '.join(map(str, options))}: {result.stderr}")
    return result.stdout


def finetune(base, *options, steps=STEPS):
    log = PLACE / "log.jsonl"
    log.unlink(missing_ok=True)
    weir("weir-gpt", "--model", base, "--chat", PLACE / "talks.jsonl", "--seq", SEQ, "--batch", BATCH, "--steps", steps, "--lr", RATE, "--log", log,
         *options)
    return [line["loss"] for line in map(json.loads, log.open()) if "loss" in line and "step" in line]


def near(got, want, tolerance, what):
    worst = max((abs(a - b) for a, b in zip(got, want)), default=1)
    check(len(got) == len(want) and worst < tolerance, f"{what}: {got} is not {want}")
    return worst


def near_tensors(got, want, tolerance, what):
    check(sorted(got) == sorted(want), f"{what}: names")
    for name in want:
        off = (got[name].float() - want[name].float()).abs().max().item() if name in got else 1
        check(off < tolerance, f"{what}: {name} is off by {off}")


def new_base(folder, config):
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.1)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)


def base_of(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def adapters(name, targets, ids, labels):
    base, start, ours = PLACE / name, PLACE / f"{name}-start", PLACE / f"{name}-ours"
    for folder in (start, ours, PLACE / f"{name}-merged"):
        shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(4)
    theirs = get_peft_model(base_of(base), LoraConfig(r=4, lora_alpha=12, target_modules=targets, task_type="CAUSAL_LM",
                                                      fan_in_fan_out=name == "gpt2"))
    with torch.no_grad():
        for parameter, value in theirs.named_parameters():
            if "lora_B" in parameter:
                value.normal_(0, 0.05)
    theirs.save_pretrained(start)
    want = train(theirs, ids, labels, 0.0)
    got = finetune(base, "--adapter", start, "--save", ours)
    worst = near(got, want, 2e-5, f"{name}: losses")
    theirs.save_pretrained(PLACE / f"{name}-theirs")
    near_tensors(load_file(ours / "adapter_model.safetensors"), load_file(PLACE / f"{name}-theirs/adapter_model.safetensors"), 1e-3, name)
    opened = PeftModel.from_pretrained(base_of(base), ours).eval()
    with torch.no_grad():
        near([loss_of(opened, ids, labels).item()], finetune(base, "--adapter", ours, steps=1), 1e-5, f"{name}: an adapter of weir in peft")
    split = finetune(base, "--adapter", start, "--tp", 2, "--dp", 2, "--micro", 2)
    near(split, want, 2e-5, f"{name}: losses of four devices")
    near(finetune(base, "--adapter", start, "--bf16"), want, 0.05, f"{name}: losses in bf16")
    merged = PLACE / f"{name}-merged"
    weir("weir", "checkpoint", "convert", "--merge", ours, base, merged)
    with torch.no_grad():
        near([loss_of(base_of(merged), ids, labels).item()], [loss_of(opened, ids, labels).item()], 1e-5, f"{name}: merged")
    return worst


def whole(name, ids, labels):
    base, model = PLACE / name, base_of(PLACE / name)
    out = PLACE / f"{name}-whole"
    shutil.rmtree(out, ignore_errors=True)
    near(finetune(base, "--save", out), train(model, ids, labels, 0.01), 5e-5, f"{name}: losses of whole training")


def gguf(path):
    """Four windows of token ids, so that each step sees all of them."""
    ours, tokens = PLACE / "gguf-ours", PLACE / "ids.bin"
    shutil.rmtree(ours, ignore_errors=True)
    ids = np.array([(7 * i * i + 11 * i) % 4000 for i in range(4 * 32 + 1)], dtype=np.uint16)
    ids.tofile(tokens)
    rows = torch.tensor(ids[:128].astype(np.int64)).view(4, 32), torch.tensor(ids[1:].astype(np.int64)).view(4, 32)
    log = PLACE / "gguf.jsonl"

    def losses(*options):
        log.unlink(missing_ok=True)
        weir("weir-gpt", "--model", path, "--tokens", tokens, "--seq", 32, "--batch", 4, "--log", log, *options)
        return [line["loss"] for line in map(json.loads, log.open()) if "loss" in line and "step" in line]

    before = losses("--lora", 4, "--lora-targets", "q_proj,k_proj,o_proj", "--steps", 4, "--lr", 0.02, "--save", ours)[0]
    got, rounded = losses("--adapter", ours, "--steps", 1, "--f32-activations"), losses("--adapter", ours, "--steps", 1)
    base = AutoModelForCausalLM.from_pretrained(pathlib.Path(path).parent, gguf_file=pathlib.Path(path).name, dtype=torch.float32).eval()
    with torch.no_grad():
        want = [loss_of(PeftModel.from_pretrained(base, ours).eval(), *rows).item()]
    check(got[0] < before - 0.5, f"gguf: the loss {got} is not far below {before}")
    worst = near(got, want, 1e-3, "gguf: the loss of an adapter")
    near(rounded, want, 0.1, "gguf: the loss of an adapter where products round the other factor")
    print(f"finetune: {pathlib.Path(path).name}: {got[0]:.4f} with an adapter, {before:.4f} before, within {worst:.1e} of transformers with peft")


def main():
    PLACE.mkdir(parents=True, exist_ok=True)
    (PLACE / "talks.jsonl").write_text("".join(json.dumps(talk) + "\n" for talk in talks()))
    ids, labels = batch_of(tokenizer(), talks())
    for name, (config, targets) in MODELS.items():
        new_base(PLACE / name, config)
        worst = adapters(name, targets, ids, labels)
        whole(name, ids, labels)
        print(f"finetune: {name}: {STEPS} losses are within {worst:.1e} of torch with peft; adapters open on both sides")
    if len(sys.argv) > 3:
        gguf(sys.argv[3])
    sys.exit(failed > 0)


main()

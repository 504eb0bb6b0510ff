"""Greedy text of `weir-gpt --model`, beside the model in double precision.

    llama.py BIN FILE.gguf

The reference takes the weights as the package gguf reads them. A token has to be the reference's, unless its two best are closer than
1e-3.
"""
import subprocess
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

BIN, PATH = sys.argv[1], sys.argv[2]
PROMPTS = ["The capital of France is", "def fibonacci(n):\n", "Water boils at"]
TOKENS = 40


class Model:
    def __init__(self, path):
        reader = GGUFReader(path)
        self.weight = {t.name: dequantize(t.data, t.tensor_type).reshape([int(d) for d in reversed(t.shape)]).astype(np.float64)
                       for t in reader.tensors}
        self.reader = reader
        self.layers, self.dim = int(self.number("llama.block_count")), int(self.number("llama.embedding_length"))
        self.heads, self.kv_heads = int(self.number("llama.attention.head_count")), int(self.number("llama.attention.head_count_kv"))
        self.eps, base = float(self.number("llama.attention.layer_norm_rms_epsilon")), float(self.number("llama.rope.freq_base"))
        self.head = self.dim // self.heads
        self.frequency = base ** (-2.0 * np.arange(self.head // 2) / self.head)
        self.begin()

    def number(self, key):
        field = self.reader.fields[key]
        return field.parts[field.data[0]][0]

    def begin(self):
        self.position = 0
        self.keys, self.values = [[] for _ in range(self.layers)], [[] for _ in range(self.layers)]

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean() + self.eps) * self.weight[name]

    def turned(self, x):
        x = x.reshape(-1, self.head // 2, 2)
        c, s = np.cos(self.position * self.frequency), np.sin(self.position * self.frequency)
        return np.stack([x[..., 0] * c - x[..., 1] * s, x[..., 1] * c + x[..., 0] * s], -1).reshape(-1, self.head)

    def attention(self, x, block):
        name = f"blk.{block}."
        h = self.norm(x, name + "attn_norm.weight")
        q, k = (self.turned(self.weight[name + f"attn_{n}.weight"] @ h) for n in "qk")
        self.keys[block].append(k)
        self.values[block].append((self.weight[name + "attn_v.weight"] @ h).reshape(self.kv_heads, self.head))
        keys, values = np.stack(self.keys[block], 1), np.stack(self.values[block], 1)
        out = np.empty((self.heads, self.head))
        for j in range(self.heads):
            own = j // (self.heads // self.kv_heads)
            score = keys[own] @ q[j] / np.sqrt(self.head)
            score = np.exp(score - score.max())
            out[j] = score / score.sum() @ values[own]
        return x + self.weight[name + "attn_output.weight"] @ out.reshape(-1)

    def step(self, token):
        x = self.weight["token_embd.weight"][token]
        for block in range(self.layers):
            name = f"blk.{block}."
            x = self.attention(x, block)
            h = self.norm(x, name + "ffn_norm.weight")
            gate = self.weight[name + "ffn_gate.weight"] @ h
            x = x + self.weight[name + "ffn_down.weight"] @ (gate / (1 + np.exp(-gate)) * (self.weight[name + "ffn_up.weight"] @ h))
        self.position += 1
        return self.weight.get("output.weight", self.weight["token_embd.weight"]) @ self.norm(x, "output_norm.weight")


def ids(text):
    done = subprocess.run([f"{BIN}/weir", "tokens", "encode", "--tokenizer", PATH, "-"], input=text.encode(), capture_output=True, check=True)
    return [int(i) for i in done.stdout.split()]


def compare(model, prompt):
    run = [f"{BIN}/weir-gpt", "--model", PATH, "--prompt", prompt, "--sample", str(TOKENS)]
    written = subprocess.run(run, capture_output=True, check=True).stdout[:-1].decode()
    begun, whole = ids(prompt), ids(written)
    model.begin()
    for at, token in enumerate(whole):
        logits = model.step(token)
        if at + 1 < len(begun) or at + 1 == len(whole):
            continue
        best = np.sort(logits)[-2:]
        if whole[at + 1] != int(np.argmax(logits)) and best[1] - best[0] > 1e-3:
            return f"{prompt!r}: token {at + 1} is {whole[at + 1]}, and {int(np.argmax(logits))} in double precision"
    print(f"{prompt!r}: {len(whole) - len(begun)} tokens are those of the model in double precision", flush=True)
    return None


def main():
    model = Model(PATH)
    faults = [fault for prompt in PROMPTS if (fault := compare(model, prompt))]
    for fault in faults:
        print(fault)
    return 1 if faults else 0


sys.exit(main())

"""A Llama model of a GGUF file in double precision, whole texts at once.

    exact       as it is
    bytes_of    as weir computes it by default: the left factor of a product is rounded to bytes with a scale for each 32 elements, and
                keys and values are bf16. Roundings are those of f32 (kernels/stored/rounded.h); all the rest is double.
    Following   the same, but where a value lies between two bytes, it goes to the one that weir has taken

A rounding turns a difference of 1e-7 into one of 1/127 wherever a value lies between two bytes, and a few thousand such values follow
each other from the first block to the logits. So two programs with different sums have logits that differ as much as either differs from the
model that is not rounded. `Following` takes weir's left factors and rounds them, and tells how far they are from its own.
"""
import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize


def bytes_of(x):
    """x [.., in], rounded to bytes."""
    x = x.astype(np.float32).reshape(*x.shape[:-1], -1, 32)
    largest = np.abs(x).max(-1, keepdims=True)
    by = np.where(largest >= 1e-30, np.float32(127) / np.maximum(largest, np.float32(1e-30)), np.float32(0))
    rounded = np.rint(x * by).astype(np.float64) * (largest / np.float32(127)).astype(np.float64)
    return rounded.reshape(*x.shape[:-2], -1)


def bf16_of(x):
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


def exact(x):
    return x


class Following:
    """`inputs`: weir's left factors, [tokens, width] each, in the order of the model. `apart`: for each, the differences of the rows, relative
    to their largest element."""

    def __init__(self, inputs):
        self.inputs, self.apart = iter(inputs), []

    def __call__(self, x):
        of_weir = next(self.inputs)
        self.apart.append(np.abs(x - of_weir).max(-1) / np.abs(x).max(-1))
        return bytes_of(of_weir)


class Model:
    def __init__(self, path):
        self.reader = GGUFReader(path)
        self.weight = {t.name: dequantize(t.data, t.tensor_type).reshape([int(d) for d in reversed(t.shape)]).astype(np.float64)
                       for t in self.reader.tensors}
        self.layers, self.dim = int(self.number("llama.block_count")), int(self.number("llama.embedding_length"))
        self.heads, self.kv_heads = int(self.number("llama.attention.head_count")), int(self.number("llama.attention.head_count_kv"))
        self.eps, base = float(self.number("llama.attention.layer_norm_rms_epsilon")), float(self.number("llama.rope.freq_base"))
        self.head, self.ffn = self.dim // self.heads, int(self.number("llama.feed_forward_length"))
        self.vocab = len(self.weight["token_embd.weight"])
        self.frequency = base ** (-2.0 * np.arange(self.head // 2) / self.head)

    def number(self, key):
        field = self.reader.fields[key]
        return field.parts[field.data[0]][0]

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.weight[name]

    def turned(self, x):
        """[rows, heads * head] -> [heads, rows, head], its pairs turned by their positions."""
        x = x.reshape(len(x), -1, self.head // 2, 2)
        angle = np.arange(len(x))[:, None, None] * self.frequency
        c, s = np.cos(angle), np.sin(angle)
        return np.stack([x[..., 0] * c - x[..., 1] * s, x[..., 1] * c + x[..., 0] * s], -1).reshape(len(x), -1, self.head).transpose(1, 0, 2)

    def attention(self, q, keys, values):
        hidden = np.triu(np.full((q.shape[1], q.shape[1]), -np.inf), 1)
        out = np.empty_like(q)
        for j in range(self.heads):
            own = j // (self.heads // self.kv_heads)
            score = q[j] @ keys[own].T / np.sqrt(self.head) + hidden
            score = np.exp(score - score.max(-1, keepdims=True))
            out[j] = score / score.sum(-1, keepdims=True) @ values[own]
        return out.transpose(1, 0, 2).reshape(q.shape[1], -1)

    def attention_half(self, x, name, rounding):
        h = rounding(self.norm(x, name + "attn_norm.weight"))
        q, k, v = (h @ self.weight[name + f"attn_{part}.weight"].T for part in "qkv")
        q, k, v = self.turned(q), self.turned(k), v.reshape(len(x), self.kv_heads, self.head).transpose(1, 0, 2)
        k, v = (k, v) if rounding is exact else (bf16_of(k), bf16_of(v))
        return x + rounding(self.attention(q, k, v)) @ self.weight[name + "attn_output.weight"].T

    def feed_forward_half(self, x, name, rounding):
        h = rounding(self.norm(x, name + "ffn_norm.weight"))
        gate, up = (h @ self.weight[name + f"ffn_{part}.weight"].T for part in ("gate", "up"))
        return x + rounding(gate / (1 + np.exp(-gate)) * up) @ self.weight[name + "ffn_down.weight"].T

    def logits(self, tokens, rounding=exact):
        """[tokens, vocab]"""
        x = self.weight["token_embd.weight"][tokens]
        for block in range(self.layers):
            name = f"blk.{block}."
            x = self.feed_forward_half(self.attention_half(x, name, rounding), name, rounding)
        head = "output.weight" if "output.weight" in self.weight else "token_embd.weight"
        return rounding(self.norm(x, "output_norm.weight")) @ self.weight[head].T

#!/usr/bin/python3
"""The GPT of apps/common/model/gpt.c in PyTorch and double precision: an oracle for weir's training.

It draws the same initial values and the same batches as weir (Philox, graph/base/base.c), trains 20 steps and writes the
losses to gpt_losses.csv beside this file, once for plain AdamW and once with everything that weir_adamw() takes:
clipping, weight decay, warm-up and cosine. tests/support/reference.c says the same in C; the committed losses are
what this script wrote.

    apt-get install python3-torch && /usr/bin/python3 tests/reference/gpt_reference.py
"""
import math
import os

import numpy as np
import torch

LAYERS, DIM, HEADS, SEQ, BATCH, VOCAB, STEPS = 4, 64, 4, 32, 16, 256, 20
SEED, LR = 1, 1e-3
PLAIN = dict(beta1=0.9, beta2=0.999, decay=0.0, clip=0.0, warmup=0, total=0, lr_min=0.0)
FULL = dict(beta1=0.9, beta2=0.95, decay=0.1, clip=1.0, warmup=5, total=20, lr_min=1e-4)

MASK32, MASK64 = np.uint64(0xFFFFFFFF), (1 << 64) - 1
WORDS = "weir water gate level flow stream bank stone fish mill race pond sluice lock canal rain".split()


def philox(key, lo, hi):
    """Philox4x32-10; `lo` and `hi` are integers or arrays of them. Four arrays of 32-bit words (as uint64)."""
    lo, hi = np.asarray(lo, np.uint64), np.asarray(hi, np.uint64)
    lo, hi = np.broadcast_arrays(lo, hi)
    half = np.uint64(32)
    c = [lo & MASK32, lo >> half, hi & MASK32, hi >> half]
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> half) ^ c[1] ^ np.uint64(k0), p1 & MASK32, (p0 >> half) ^ c[3] ^ np.uint64(k1), p0 & MASK32]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def normal(key, count):
    word = philox(key, np.arange(count), 1)
    u = (word[0].astype(np.float64) + 0.5) * 2.0**-32
    v = (word[1].astype(np.float64) + 0.5) * 2.0**-32
    return (np.sqrt(-2.0 * np.log(u)) * np.cos(6.283185307179586 * v)).astype(np.float32)


def name_key(seed, name):
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 & MASK64
    return value ^ (seed * 0x9E3779B97F4A7C15 & MASK64)


def make_params():
    """Names, shapes and initial values as in apps/common/model/gpt.c."""
    params = {}

    def add(name, shape, std=0.0, value=0.0):
        count = int(np.prod(shape))
        start = normal(name_key(SEED, name), count) * np.float32(std) if std else np.full(count, value, np.float32)
        params[name] = torch.tensor(start.astype(np.float64).reshape(shape), requires_grad=True)

    def linear(name, rows, columns, std, bias=True):
        add(name + "/weight", (rows, columns), std)
        if bias:
            add(name + "/bias", (columns,))

    def norm(name):
        add(name + "/gain", (DIM,), value=1.0)
        add(name + "/bias", (DIM,))

    residual = 0.02 / math.sqrt(2 * LAYERS)
    add("wte/weight", (VOCAB, DIM), 0.02)
    add("wpe", (SEQ, DIM), 0.02)
    for i in range(LAYERS):
        h = f"h{i}/"
        norm(h + "ln1")
        for name in "qkv":
            linear(h + name, DIM, DIM, 0.02)
        linear(h + "o", DIM, DIM, residual)
        norm(h + "ln2")
        linear(h + "up", DIM, 4 * DIM, 0.02)
        linear(h + "down", 4 * DIM, DIM, residual)
    norm("ln")
    linear("head", DIM, VOCAB, 0.02, bias=False)
    return params


def forward(p, tokens, labels):
    F = torch.nn.functional

    def norm(x, name):
        return F.layer_norm(x, (DIM,), p[name + "/gain"], p[name + "/bias"], 1e-5)

    def linear(x, name):
        return x @ p[name + "/weight"] + p[name + "/bias"]

    def heads(x):
        return x.view(x.shape[0], SEQ, HEADS, DIM // HEADS).transpose(1, 2)

    mask = torch.full((SEQ, SEQ), -math.inf, dtype=torch.float64).triu(1)
    x = p["wte/weight"][tokens] + p["wpe"]
    for i in range(LAYERS):
        h = norm(x, f"h{i}/ln1")
        q, k, v = (heads(linear(h, f"h{i}/{name}")) for name in "qkv")
        a = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(DIM // HEADS) + mask, -1) @ v
        x = x + linear(a.transpose(1, 2).reshape(x.shape), f"h{i}/o")
        h = linear(norm(x, f"h{i}/ln2"), f"h{i}/up")
        h = 0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))
        x = x + linear(h, f"h{i}/down")
    logits = norm(x, "ln") @ p["head/weight"]
    return F.cross_entropy(logits.reshape(-1, VOCAB), labels.reshape(-1))


def make_text(count):
    picks = philox(0x77656972, np.arange(count), 0)[0] & np.uint64(15)
    text = "".join(WORDS[int(i)] + " " for i in picks)
    return np.frombuffer(text[:count].encode(), np.uint8).astype(np.int64)


def batch(text, step):
    word = philox(SEED, step, np.arange(BATCH))
    draw = word[1] << np.uint64(32) | word[0]
    start = (draw % np.uint64(len(text) - SEQ)).astype(np.int64)
    window = text[start[:, None] + np.arange(SEQ + 1)]
    return torch.tensor(window[:, :-1]), torch.tensor(window[:, 1:])


def rate(o, step):
    if step < o["warmup"]:
        return LR * (step + 1) / o["warmup"]
    if not o["total"]:
        return LR
    share = min(1.0, (step - o["warmup"]) / (o["total"] - o["warmup"]))
    return o["lr_min"] + (LR - o["lr_min"]) * 0.5 * (1 + math.cos(math.pi * share))


def update(p, m, v, o, step):
    """AdamW (Loshchilov and Hutter 2019) after clipping by the norm of all gradients."""
    lr = rate(o, step)
    norm = math.sqrt(sum(float((x.grad**2).sum()) for x in p.values()))
    scale = min(1.0, o["clip"] / norm) if o["clip"] else 1.0
    with torch.no_grad():
        for name, x in p.items():
            g = x.grad * scale
            m[name] = o["beta1"] * m[name] + (1 - o["beta1"]) * g
            v[name] = o["beta2"] * v[name] + (1 - o["beta2"]) * g * g
            mean = m[name] / (1 - o["beta1"] ** (step + 1))
            root = torch.sqrt(v[name] / (1 - o["beta2"] ** (step + 1))) + 1e-8
            if x.dim() > 1:
                x -= lr * o["decay"] * x
            x -= lr * mean / root
            x.grad = None


def train(options):
    p, text, losses = make_params(), make_text(4096), []
    m, v = ({name: torch.zeros_like(x) for name, x in p.items()} for _ in range(2))
    for step in range(STEPS):
        loss = forward(p, *batch(text, step))
        loss.backward()
        losses.append(loss.item())
        update(p, m, v, options, step)
    return losses


def main():
    plain, full = train(PLAIN), train(FULL)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpt_losses.csv")
    with open(path, "w") as file:
        file.write("step,plain,full\n")
        for step, (a, b) in enumerate(zip(plain, full)):
            file.write(f"{step},{a:.9f},{b:.9f}\n")


if __name__ == "__main__":
    main()

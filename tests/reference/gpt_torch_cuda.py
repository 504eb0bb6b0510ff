#!/usr/bin/env python3
"""PyTorch's training step of GPT-2's smallest on one card, beside `weir bench gpt --device cuda`.

The same sizes, unless said otherwise: 12 layers, dim 768, 12 heads, seq 1024, a vocabulary of 50,304, a matrix of its own for the
logits, batch 64, AdamW. bf16 by autocast with f32 parameters, torch.compile, scaled_dot_product_attention, fused AdamW.
Rounds of several steps, after two that are not counted; printed is one JSON object with the median.

    weir bench gpt --device cuda --json
    python3 tests/reference/gpt_torch_cuda.py

It needs a card and says so where none is; `--device cpu --quick` tries it out.
"""
import argparse
import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        rows, seq, dim = x.shape
        parts = self.qkv(self.ln1(x)).split(dim, dim=2)
        q, k, v = (p.view(rows, seq, self.heads, dim // self.heads).transpose(1, 2) for p in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(rows, seq, dim)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(size["vocab"], size["dim"]), nn.Embedding(size["seq"], size["dim"])
        self.blocks = nn.ModuleList(Block(size["dim"], size["heads"]) for _ in range(size["layers"]))
        self.ln, self.head = nn.LayerNorm(size["dim"]), nn.Linear(size["dim"], size["vocab"], bias=False)

    def forward(self, tokens, labels):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.ln(x)).flatten(0, 1).float(), labels.flatten())


def measure(opts, size):
    device = torch.device(opts.device)
    torch.manual_seed(1)
    model = Gpt(size).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=opts.device == "cuda")
    run = torch.compile(model) if not opts.eager else model
    tokens = torch.randint(0, 256, (size["batch"], size["seq"] + 1), device=device)

    def step():
        with torch.autocast(opts.device, dtype=torch.bfloat16):
            loss = run(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    seconds = []
    for number in range(opts.rounds + 2):
        start = time.monotonic()
        for _ in range(opts.steps):
            loss = step()
        value = loss.item()  # waits for the card
        if number >= 2:
            seconds.append((time.monotonic() - start) / opts.steps)
    median = statistics.median(seconds)
    return {"torch": torch.__version__, **size, "loss": round(value, 4), "step_ms": round(1e3 * median, 3),
            "tokens_per_s": round(size["batch"] * size["seq"] / median)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=10, help="of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--quick", action="store_true", help="a very small model")
    opts = parser.parse_args()
    if opts.device == "cuda" and not torch.cuda.is_available():
        sys.exit("gpt_torch_cuda.py: there is no card that PyTorch can use here")
    size = {"layers": 12, "dim": 768, "heads": 12, "seq": 1024, "vocab": 50304, "batch": opts.batch}
    if opts.quick:
        size = {"layers": 2, "dim": 32, "heads": 2, "seq": 32, "vocab": 320, "batch": 2}
    print(json.dumps(measure(opts, size)))


if __name__ == "__main__":
    main()

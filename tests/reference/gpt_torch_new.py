#!/usr/bin/env python3
"""The newest PyTorch's step time for the model of `weir bench gpt`, in f32 and bf16, as one JSON object.

6 layers, dim 384, 6 heads, seq 256, batch 8, a vocabulary of 256 bytes, fused AdamW; attention is PyTorch's own
(scaled_dot_product_attention), bf16 is torch.autocast over f32 parameters, and every way is timed as written (eager) and
through torch.compile. Rounds take turns, so that a slow spell of the machine hits all ways alike; medians count, after
two rounds that do not. GELU is the tanh form, as in weir.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install torch
    /tmp/venv/bin/python tests/reference/gpt_torch_new.py --threads 1 2 --rounds 7
"""
import argparse
import contextlib
import json
import statistics
import time

import torch

LAYERS, DIM, HEADS, SEQ, BATCH, VOCAB = 6, 384, 6, 256, 8, 256
F = torch.nn.functional


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = torch.nn.LayerNorm(DIM), torch.nn.LayerNorm(DIM)
        self.qkv, self.o = torch.nn.Linear(DIM, 3 * DIM), torch.nn.Linear(DIM, DIM)
        self.up, self.down = torch.nn.Linear(DIM, 4 * DIM), torch.nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        q, k, v = self.qkv(self.ln1(x)).view(BATCH, SEQ, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(BATCH, SEQ, DIM))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class GPT(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(VOCAB, DIM), torch.nn.Parameter(0.02 * torch.randn(SEQ, DIM))
        self.blocks = torch.nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.ln, self.head = torch.nn.LayerNorm(DIM), torch.nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, tokens, labels):
        logits = self.head(self.ln(self.blocks(self.wte(tokens) + self.wpe)))
        return F.cross_entropy(logits.view(-1, VOCAB).float(), labels.view(-1))


class Way:
    """One way to run the step: its model, optimizer and times."""

    def __init__(self, bf16, compiled):
        torch.manual_seed(0)
        self.model = GPT()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, fused=True)
        self.forward = torch.compile(self.model) if compiled else self.model
        self.bf16 = bf16
        self.times = []

    def step(self, tokens, labels):
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16) if self.bf16 else contextlib.nullcontext():
            loss = self.forward(tokens, labels)
        loss.backward()
        self.optimizer.step()
        self.times.append(1e3 * (time.perf_counter() - start))


def measure(threads, rounds, compiled):
    torch.set_num_threads(threads)
    tokens, labels = (torch.randint(VOCAB, (BATCH, SEQ)) for _ in range(2))
    ways = {f"{'bf16' if b else 'f32'}_{'compiled' if c else 'eager'}": Way(b, c)
            for b in (False, True) for c in ((False, True) if compiled else (False,))}
    for _ in range(rounds + 2):
        for way in ways.values():
            way.step(tokens, labels)
    return {name: round(statistics.median(way.times[2:]), 2) for name, way in ways.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--eager", action="store_true", help="without torch.compile, which wants a C++ compiler")
    args = parser.parse_args()
    result = {"torch": torch.__version__, "rounds": args.rounds}
    for threads in args.threads:
        torch._dynamo.reset()
        for name, ms in measure(threads, args.rounds, not args.eager).items():
            result[f"step_ms_{threads}_{name}"] = ms
    print(json.dumps(result))


if __name__ == "__main__":
    main()

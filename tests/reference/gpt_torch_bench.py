#!/usr/bin/python3
"""PyTorch's step time for the model of `weir bench gpt`, with its best settings, as one JSON object.

6 layers, dim 384, 6 heads, seq 256, batch 8, a vocabulary of 256 bytes, AdamW, f32; one thread and two. Timed with
oneDNN on and off, as written and traced (torch.jit.trace); the fastest counts. GELU is the exact one, which is the
faster of PyTorch's two. The argument is the number of steps timed [7], after two that are not.

    apt-get install python3-torch && /usr/bin/python3 tests/reference/gpt_torch_bench.py
"""
import itertools
import json
import math
import statistics
import sys
import time
import warnings

import torch

LAYERS, DIM, HEADS, SEQ, BATCH, VOCAB = 6, 384, 6, 256, 8, 256
F = torch.nn.functional


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = torch.nn.LayerNorm(DIM), torch.nn.LayerNorm(DIM)
        self.qkv, self.o = torch.nn.Linear(DIM, 3 * DIM), torch.nn.Linear(DIM, DIM)
        self.up, self.down = torch.nn.Linear(DIM, 4 * DIM), torch.nn.Linear(4 * DIM, DIM)
        self.register_buffer("mask", torch.full((SEQ, SEQ), -math.inf).triu(1))

    def forward(self, x):
        q, k, v = self.qkv(self.ln1(x)).view(BATCH, SEQ, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        q, k, v = (t.reshape(-1, SEQ, DIM // HEADS) for t in (q, k, v))
        scores = torch.baddbmm(self.mask, q, k.transpose(1, 2), alpha=1 / math.sqrt(DIM // HEADS))
        a = torch.bmm(torch.softmax(scores, -1), v)
        x = x + self.o(a.view(BATCH, HEADS, SEQ, DIM // HEADS).transpose(1, 2).reshape(BATCH, SEQ, DIM))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class GPT(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(VOCAB, DIM), torch.nn.Parameter(0.02 * torch.randn(SEQ, DIM))
        self.blocks = torch.nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.ln, self.head = torch.nn.LayerNorm(DIM), torch.nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, tokens, labels):
        logits = self.head(self.ln(self.blocks(self.wte(tokens) + self.wpe)))
        return F.cross_entropy(logits.view(-1, VOCAB), labels.view(-1))


def step_ms(threads, onednn, traced, steps):
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    tokens, labels = (torch.randint(VOCAB, (BATCH, SEQ)) for _ in range(2))
    with torch.backends.mkldnn.flags(enabled=onednn):
        model = GPT()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
        run = torch.jit.trace(model, (tokens, labels)) if traced else model
        times = []
        for _ in range(steps + 2):
            start = time.perf_counter()
            optimizer.zero_grad(set_to_none=True)
            run(tokens, labels).backward()
            optimizer.step()
            times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times[2:])


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    warnings.simplefilter("ignore")  # torch.jit.trace on unpacking q, k, v
    result = {"torch": torch.__version__, "steps": steps}
    for threads in (1, 2):
        ways = {(o, t): step_ms(threads, o, t, steps) for o, t in itertools.product((True, False), repeat=2)}
        best = min(ways, key=ways.get)
        result[f"step_ms_{threads}"] = round(ways[best], 2)
        result[f"settings_{threads}"] = {"onednn": best[0], "traced": best[1]}
    print(json.dumps(result))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The model of `weir bench gpt` under torchrun, to be killed: DistributedDataParallel over gloo, one thread a rank, a
checkpoint by torch.save every 5 steps, which a restarted process goes on from. Writes what
tests/reference/restart_bench looks for to PREFIX.RANK: a line for each thing that happened, with the time.

    torchrun --nproc-per-node 2 --max-restarts 3 tests/reference/gpt_torchrun.py FOLDER PREFIX STEPS
"""
import os
import sys
import time

start = time.time()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gpt_torch_bench as bench  # noqa: E402

SAVE_EVERY = 5


def main():
    folder, prefix, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
    rank = int(os.environ["RANK"])
    out = open(f"{prefix}.{rank}", "a", buffering=1)
    out.write(f"rank {rank} of {os.environ['WORLD_SIZE']}, pid {os.getpid()}\nbegin {start:.3f}\n")
    out.write(f"compiled {time.time():.3f}\n")  # imported; there is nothing to compile
    torch.set_num_threads(1)
    torch.manual_seed(0)
    bench.BATCH //= int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(bench.GPT())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    out.write(f"start {time.time():.3f}\n")
    path, done = os.path.join(folder, "checkpoint.pt"), 0
    if os.path.exists(path):
        state = torch.load(path)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["step"]
        out.write(f"loaded {done} {time.time():.3f}\n")
    tokens, labels = (torch.randint(bench.VOCAB, (bench.BATCH, bench.SEQ)) for _ in range(2))
    for step in range(done, steps):
        optimizer.zero_grad(set_to_none=True)
        loss = model(tokens, labels)
        loss.backward()
        optimizer.step()
        out.write(f"loss {step} {loss.item():.6f}\n")
        if step == done:
            out.write(f"first {time.time():.3f}\n")
        if (step + 1) % SAVE_EVERY == 0 and rank == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            torch.save(state, path + ".new")
            os.replace(path + ".new", path)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

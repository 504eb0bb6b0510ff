"""All-reduce of f32 sums with PyTorch's Gloo, to be held against `weir bench allreduce`. Gloo goes over TCP.

Needs a Python with PyTorch, as Debian's with python3-torch; no part of weir does. Two ranks, then four:

    /usr/bin/python3 tests/reference/allreduce_gloo.py 2
    /usr/bin/python3 tests/reference/allreduce_gloo.py 4

Prints a line per size: bytes, and microseconds per call, the median of nine rounds of calls back to back. A round's
time is that of the slowest rank. With a size and a number of rounds behind the ranks it is that size alone, and so many
rounds: allreduce_beside.py asks for them. The last sum is checked.
"""
import os
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

SIZES = [4, 64 << 10, 1 << 20, 16 << 20, 64 << 20]
ROUNDS = 9
ROUND_SECONDS = 0.15


def time_calls(x, calls):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(x)
    seconds = torch.tensor([(time.perf_counter() - start) / calls], dtype=torch.float64)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return seconds.item()


def check(size, ranks):
    x = 1 + torch.arange(size // 4, dtype=torch.float32) % 61
    whole = ranks * x
    dist.all_reduce(x)
    if not torch.equal(x, whole):
        sys.exit(f"the sum of {size} bytes is wrong")


def play(rank, ranks, port, sizes, rounds):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    for size in sizes:
        x = torch.zeros(size // 4)
        time_calls(x, 2)
        calls = max(4, min(100000, int(ROUND_SECONDS / time_calls(x, 4))))
        seconds = statistics.median(time_calls(x, calls) for _ in range(rounds))
        check(size, ranks)
        if rank == 0:
            print(f"{ranks} ranks {size:10d} bytes {1e6 * seconds:12.3f} us", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    alone = [int(sys.argv[2])] if len(sys.argv) > 2 else SIZES
    rounds_count = int(sys.argv[3]) if len(sys.argv) > 3 else ROUNDS
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free_port = probe.getsockname()[1]
    processes.start_processes(play, args=(count, free_port, alone, rounds_count), nprocs=count, start_method="fork")

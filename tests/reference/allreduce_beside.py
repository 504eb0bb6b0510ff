#!/usr/bin/env python3
"""Sums over processes: weir, a bare loop over shared memory and Open MPI, in turns, in one run.

A round asks each of them for one size and number of ranks, one after the other; so a slow spell of the machine, or cores
that have moved apart, hit all alike. Printed are medians over the rounds, in microseconds per sum, and the medians of the
rounds' ratios: `of_bare` (weir's time by the bare loop's) and `of_mpi` (by Open MPI's). With --tcp it is weir without a key
and Open MPI over loopback; there is no bare loop then.

Needs Debian's openmpi-bin and libopenmpi-dev; without them the columns of Open MPI are empty. After `make all`:

    chrt -f 50 python3 tests/reference/allreduce_beside.py --ranks 2 --rounds 9
    python3 tests/reference/allreduce_beside.py --ranks 4 8 16 --json
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
WEIR = os.path.join(HERE, "..", "..", "build", "bin", "weir")
SIZES = [4, 64 << 10, 1 << 20, 16 << 20, 64 << 20]
BTL = {False: ["vader,self"], True: ["tcp,self", "--mca", "btl_tcp_if_include", "lo"]}


def build_mpi(folder):
    """The program, or None where Open MPI is not installed."""
    if not shutil.which("mpicc") or not shutil.which("mpirun"):
        return None
    program = os.path.join(folder, "allreduce")
    source = os.path.join(HERE, "allreduce_openmpi.c")
    subprocess.run(["mpicc", "-O3", "-march=native", "-o", program, source], check=True)
    return program


def mpi_us(program, ranks, size, tcp):
    command = ["mpirun", "-n", str(ranks)] + (["--oversubscribe"] if ranks > os.cpu_count() else [])
    command += ["--mca", "btl"] + BTL[tcp] + [program, str(size), "3"]
    env = dict(os.environ)
    if os.geteuid() == 0:
        env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    text = subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout
    return float(text.split()[-2])


def weir_us(program, ranks, size, tcp):
    command = [program, "bench", "allreduce", "--json", "--ranks", str(ranks), "--bytes", str(size)]
    text = subprocess.run(command + ["--tcp" if tcp else "--shm"], check=True, capture_output=True, text=True).stdout
    sums = json.loads(text)["sums"][0]
    return (sums["tcp_us"], None) if tcp else (sums["shm_us"], sums["bare_us"])


def play_round(programs, ranks, size, tcp):
    weir, mpi = programs
    us, bare = weir_us(weir, ranks, size, tcp)
    return {"weir_us": us, "bare_us": bare, "mpi_us": mpi_us(mpi, ranks, size, tcp) if mpi else None}


def median(values):
    known = [v for v in values if v is not None]
    return round(statistics.median(known), 3) if known else None


def ratios(rounds, other):
    return [r["weir_us"] / r[other] if r[other] else None for r in rounds]


def measure(programs, ranks, size, rounds, tcp):
    played = [play_round(programs, ranks, size, tcp) for _ in range(rounds)]
    line = {"ranks": ranks, "bytes": size}
    line.update({name: median([r[name] for r in played]) for name in ("weir_us", "bare_us", "mpi_us")})
    line.update(of_bare=median(ratios(played, "bare_us")), of_mpi=median(ratios(played, "mpi_us")))
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--bytes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--weir", default=WEIR, help="the program [build/bin/weir]")
    parser.add_argument("--tcp", action="store_true")
    parser.add_argument("--json", action="store_true")
    opts = parser.parse_args()
    names = ["ranks", "bytes", "weir_us", "bare_us", "mpi_us", "of_bare", "of_mpi"]
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        programs = opts.weir, build_mpi(folder)
        if not opts.json:
            print(" ".join(f"{name:>12}" for name in names))
        for ranks in opts.ranks:
            for size in opts.bytes:
                lines.append(measure(programs, ranks, size, opts.rounds, opts.tcp))
                if not opts.json:
                    print(" ".join(f"{'-' if lines[-1][n] is None else lines[-1][n]:>12}" for n in names), flush=True)
    if opts.json:
        print(json.dumps({"over": "tcp" if opts.tcp else "shm", "sums": lines}))


if __name__ == "__main__":
    main()

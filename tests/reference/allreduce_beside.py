#!/usr/bin/env python3
"""Sums over processes: weir, a bare loop, Open MPI and Gloo, in turns, in one run.

A round asks each of them for one size and number of ranks, one after the other; so a slow spell of the machine, or cores
that have moved apart, hit all alike. Printed are medians over the rounds, in microseconds per sum, and the medians of the
rounds' ratios: weir's time by another's. All ranks are processes of this machine.

    weir_us, bare_us, mpi_us         over shared memory: weir, a loop by hand, Open MPI
    of_bare, of_mpi                  weir_us by the others
    with --tcp, over loopback:
    weir_us, key_us                  weir without a key, and encrypted, as a user's sessions are
    bare_us, mpi_us, gloo_us         a loop by hand over sockets; Open MPI; Gloo, as torch.distributed has it
    of_bare, of_mpi, of_gloo         weir_us by the others, none of which encrypts
    key_of_bare, key_of_mpi, ...     key_us by them

Open MPI needs Debian's openmpi-bin and libopenmpi-dev, Gloo a Python with PyTorch, named by --torch-python. The columns of
what is not there are empty: "-", in JSON null. After `make all`:

    chrt -f 50 python3 tests/reference/allreduce_beside.py --ranks 2 --rounds 9
    python3 tests/reference/allreduce_beside.py --ranks 4 8 16 --json

    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch
    python3 tests/reference/allreduce_beside.py --tcp --ranks 2 4 --torch-python /tmp/torch/bin/python
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
WEIR = os.path.join(HERE, "..", "..", "build", "bin", "weir")
SIZES = [4, 64 << 10, 1 << 20, 16 << 20, 64 << 20]
BTL = {False: ["vader,self"], True: ["tcp,self", "--mca", "btl_tcp_if_include", "lo"]}
ROUNDS = "3"  # that each of them takes the median of, within a round of ours

# Columns, and the figures of `weir bench allreduce` in them; then the pairs that are compared.
WEIR_TIMES = {False: {"weir_us": "shm_us", "bare_us": "bare_us"},
              True: {"weir_us": "tcp_us", "key_us": "tcp_key_us", "bare_us": "bare_tcp_us"}}
OTHERS = {False: ["bare", "mpi"], True: ["bare", "mpi", "gloo"]}
SUBJECTS = {False: {"weir_us": "of"}, True: {"weir_us": "of", "key_us": "key_of"}}


def output(command, env=None):
    """Returns the command's output. If it fails, prints its error and ends this program."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=env)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")
    if done.returncode:
        sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stderr}")
    return done.stdout


def build_mpi(folder):
    """The program, or None where Open MPI is not installed."""
    if not shutil.which("mpicc") or not shutil.which("mpirun"):
        return None
    program = os.path.join(folder, "allreduce")
    output(["mpicc", "-O3", "-march=native", "-o", program, os.path.join(HERE, "allreduce_openmpi.c")])
    return program


def mpi_us(program, ranks, size, tcp):
    command = ["mpirun", "-n", str(ranks)] + (["--oversubscribe"] if ranks > os.cpu_count() else [])
    command += ["--mca", "btl"] + BTL[tcp] + [program, str(size), ROUNDS]
    env = dict(os.environ)
    if os.geteuid() == 0:
        env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return float(output(command, env).split()[-2])


def gloo_us(python, ranks, size):
    script = os.path.join(HERE, "allreduce_gloo.py")
    return float(output([python, script, str(ranks), str(size), ROUNDS]).split()[-2])


def weir_times(program, ranks, size, tcp):
    command = [program, "bench", "allreduce", "--json", "--ranks", str(ranks), "--bytes", str(size)]
    sums = json.loads(output(command + ["--tcp" if tcp else "--shm"]))["sums"][0]
    return {column: sums[name] for column, name in WEIR_TIMES[tcp].items()}


def play_round(opts, mpi, ranks, size):
    times = weir_times(opts.weir, ranks, size, opts.tcp)
    times["mpi_us"] = mpi_us(mpi, ranks, size, opts.tcp) if mpi else None
    times["gloo_us"] = gloo_us(opts.torch_python, ranks, size) if opts.torch_python else None
    return times


def median(values):
    known = [v for v in values if v is not None]
    return round(statistics.median(known), 3) if known else None


def ratio_columns(tcp):
    """Column: whose time, by whose."""
    return {f"{of}_{other}": (subject, f"{other}_us")
            for subject, of in SUBJECTS[tcp].items() for other in OTHERS[tcp]}


def time_columns(tcp):
    return list(SUBJECTS[tcp]) + [f"{other}_us" for other in OTHERS[tcp]]


def measure(opts, mpi, ranks, size):
    played = [play_round(opts, mpi, ranks, size) for _ in range(opts.rounds)]
    line = {"ranks": ranks, "bytes": size}
    line.update({name: median([r[name] for r in played]) for name in time_columns(opts.tcp)})
    for name, (one, other) in ratio_columns(opts.tcp).items():
        line[name] = median([r[one] / r[other] if r[other] else None for r in played])
    return line


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--bytes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--weir", default=WEIR, help="the program [build/bin/weir]")
    parser.add_argument("--tcp", action="store_true", help="over loopback rather than shared memory")
    parser.add_argument("--torch-python", metavar="PATH", help="a Python that has PyTorch: Gloo is measured, with --tcp")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    opts = parser.parse_args()
    if opts.rounds < 1:
        parser.error("--rounds must be at least 1")
    if opts.torch_python and not opts.tcp:
        parser.error("Gloo goes over TCP: --torch-python needs --tcp")
    if opts.torch_python:
        output([opts.torch_python, "-c", "import torch.distributed as d; d.is_gloo_available() or exit('no Gloo')"])
    return opts


def main():
    opts = parse()
    names = ["ranks", "bytes"] + time_columns(opts.tcp) + list(ratio_columns(opts.tcp))
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        mpi = build_mpi(folder)
        if not opts.json:
            print(" ".join(f"{name:>12}" for name in names))
        for ranks in opts.ranks:
            for size in opts.bytes:
                lines.append(measure(opts, mpi, ranks, size))
                if not opts.json:
                    print(" ".join(f"{'-' if lines[-1][n] is None else lines[-1][n]:>12}" for n in names), flush=True)
    if opts.json:
        print(json.dumps({"over": "tcp" if opts.tcp else "shm", "sums": lines}))


if __name__ == "__main__":
    main()

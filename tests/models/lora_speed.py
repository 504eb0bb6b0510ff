#!/usr/bin/env python3
"""A step of LoRA training by weir-gpt beside PyTorch with peft, in turns: SmolLM2-135M, rank 8 on q and v, one row of 512 tokens, bf16.

    chrt -f 50 build/models/venv/bin/python tests/models/lora_speed.py build/bin SmolLM2.gguf [--rounds 3] [--threads 2]

PyTorch has a model of the same sizes with random weights in bf16, and trains q_proj and v_proj as weir-gpt does without --lora-targets.
weir reads the file as it is. Both use so many threads (weir: devices that share the model). Prints the median seconds of a step of each
round, and the ratio of the medians.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

SEQ, STEPS, VOCAB = 512, 6, 49152


def peer(threads):
    import torch
    import peft
    import transformers

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    config = transformers.LlamaConfig(vocab_size=VOCAB, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
                                      num_key_value_heads=3, max_position_embeddings=8192, tie_word_embeddings=True, rope_theta=100000)
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    model = peft.get_peft_model(model, peft.LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    ids = torch.randint(0, VOCAB, (1, SEQ))
    seconds = []
    for _ in range(STEPS):
        begun = time.perf_counter()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - begun)
    print(json.dumps({"seconds": seconds[1:], "peak_kb": int(re.search(r"VmHWM:\s*(\d+)", open("/proc/self/status").read())[1])}))


def weir(binaries, model, threads, text):
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        subprocess.run([os.path.join(binaries, "weir-gpt"), "--model", model, "--lora", "8", "--lora-targets", "q_proj,v_proj", "--text", text, "--seq",
                        str(SEQ), "--batch", "1", "--tp", str(threads), "--bf16", "--steps", str(STEPS), "--log", log, "--sample", "0"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        steps = [json.loads(line) for line in open(log)]
    seconds = [s["seconds"] for s in steps if "step" in s and "seconds" in s]
    return seconds[1:STEPS]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binaries")
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        return peer(args.threads)
    ours, theirs = [], []
    for i in range(args.rounds):
        ours.append(statistics.median(weir(args.binaries, args.model, args.threads, "README.md")))
        run = subprocess.run([sys.executable, __file__, args.binaries, args.model, "--threads", str(args.threads), "--peer"], check=True,
                             capture_output=True, text=True)
        theirs.append(statistics.median(json.loads(run.stdout.splitlines()[-1])["seconds"]))
        print(f"round {i + 1}: weir {ours[-1]:.3f} s, PyTorch {theirs[-1]:.3f} s a step", flush=True)
    print(f"ratio of the medians: {statistics.median(ours) / statistics.median(theirs):.2f}")


main()

"""`weir-gpt --model`, beside the model in double precision (llama_reference.py).

    llama.py BIN LOGITS FILE.gguf

LOGITS is the program of lm_logits.c. Compared are

    exact       logits of --f32-activations: within 1e-3
    following   logits of the default mode: within 1e-3 of the reference that rounds as weir does, and weir's left factors with its own
    text        the perplexity of the default mode on a text of the tree: within 0.5 % of the reference that rounds by itself
    greedy      200 tokens behind each of ten prompts, with --f32-activations: the reference's best, unless its two best are closer than
                1e-3. For the first of them weir-gpt writes these tokens, on one device and on two
"""
import subprocess
import sys

import numpy as np
from llama_reference import Following, Model, bytes_of, exact

BIN, LOGITS, PATH = sys.argv[1:4]
TEXT, FEW, MANY, TOKENS, WRITTEN = "docs/design.md", 100, 2000, 200, 2
PROMPTS = ["The capital of France is", "def fibonacci(n):\n", "Water boils at", "Once upon a time there was a", "The three laws of motion are",
           "SELECT name, age FROM", "Dear Sir or Madam,", "To bake bread you need", "The opposite of hot is", "1, 2, 3, 5, 8,"]
# Two left factors may differ by this, relative to the largest. That of o comes from kept keys and values, of which some lie between two
# values of bf16: half of its rows are near.
NEAR, NEAR_O = 1e-5, 0.03


def tokens(what, text):
    done = subprocess.run([f"{BIN}/weir", "tokens", what, "--tokenizer", PATH, "-"], input=text, capture_output=True, check=True)
    return done.stdout


def ids(text):
    return [int(i) for i in tokens("encode", text).split()]


def logits(model, mode, texts, more=0):
    """For each text the ids that were run, [tokens], and [tokens, ..] of weir's logits and of its left factors."""
    widths = [model.dim, model.heads * model.head, model.dim, model.ffn] * model.layers + [model.dim] if mode == "inputs" else []
    row = np.dtype([("id", "<i4"), ("logits", "<f4", (model.vocab,)), *((f"input{i}", "<f4", (width,)) for i, width in enumerate(widths))])
    lines = "".join(f"{more} {' '.join(map(str, text))}\n" for text in texts)
    with subprocess.Popen([LOGITS, PATH, mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(lines.encode())
        process.stdin.close()
        for text in texts:
            count = len(text) + more
            rows = np.frombuffer(process.stdout.read(count * row.itemsize), row)
            if len(rows) != count:
                raise RuntimeError(f"{LOGITS}: {len(rows)} of {count} tokens")
            yield rows["id"], rows["logits"], [rows[f"input{i}"] for i in range(len(widths))]


def largest(a, b):
    return np.abs(a - b).max()


# ---- logits ----

def compare_exact(model, text):
    _, ours, _ = next(logits(model, "exact", [text]))
    most = largest(ours, model.logits(text, exact))
    print(f"exact: {len(text)} tokens, logits within {most:.1e}", flush=True)
    return [] if most < 1e-3 else [f"exact: logits differ by {most:.2e}"]


def compare_following(model, text):
    _, ours, inputs = next(logits(model, "inputs", [text]))
    following = Following(inputs)
    most = largest(ours, model.logits(text, following))
    apart = np.array(following.apart)
    o = np.arange(1, len(apart) - 1, 4)
    of_o, others = apart[o], np.delete(apart, o, 0).max()
    print(f"following: {len(text)} tokens, logits within {most:.1e}; left factors within {others:.1e}, half of those of o within "
          f"{np.median(of_o):.1e}, all within {of_o.max():.1e}", flush=True)
    faults = [] if most < 1e-3 else [f"following: logits differ by {most:.2e}"]
    return faults + ([] if others < NEAR and np.median(of_o) < NEAR and of_o.max() < NEAR_O else ["following: left factors differ"])


# ---- a text ----

def perplexity(rows, text):
    """Of the tokens behind the first one; `rows` are logits of all but the last."""
    rows = rows.astype(np.float64)
    most = rows.max(-1)
    of_next = rows[np.arange(len(rows)), text[1:]]
    return np.exp((most + np.log(np.exp(rows - most[:, None]).sum(-1)) - of_next).mean())


def compare_text(model, text):
    _, ours, _ = next(logits(model, "rounded", [text]))
    ours, reference = perplexity(ours[:-1], text), perplexity(model.logits(text, bytes_of)[:-1], text)
    print(f"text: {len(text)} tokens: perplexity {ours:.4f}, in double {reference:.4f} ({ours / reference - 1:+.3%})", flush=True)
    return [] if abs(ours / reference - 1) < 5e-3 else [f"text: perplexity {ours:.4f}, and {reference:.4f} in double precision"]


# ---- greedy ----

def written(prompt, devices):
    run = [f"{BIN}/weir-gpt", "--model", PATH, "--prompt", prompt, "--sample", str(TOKENS), "--temperature", "0", "--f32-activations", "--tp", str(devices)]
    return subprocess.run(run, capture_output=True, check=True).stdout[:-1]


def compare_greedy(model, prompt, whole):
    begun, reference = len(ids(prompt.encode())), model.logits(whole, exact)
    for at in range(begun, len(whole)):
        row = reference[at - 1]
        best = np.sort(row)[-2:]
        if whole[at] != row.argmax() and best[1] - best[0] > 1e-3:
            return f"greedy: {prompt!r}: token {at} is {whole[at]}, and {row.argmax()} in double precision"
    text = tokens("decode", " ".join(map(str, whole)).encode())
    for devices in 1, 2:
        if prompt in PROMPTS[:WRITTEN] and not text.startswith(written(prompt, devices)):
            return f"greedy: {prompt!r}: weir-gpt --tp {devices} writes another text"
    return None


def main():
    model = Model(PATH)
    with open(TEXT, "rb") as file:
        text = ids(file.read())[:MANY]
    faults = compare_exact(model, text[:FEW]) + compare_following(model, text[:FEW]) + compare_text(model, text)
    runs = logits(model, "exact", [ids(prompt.encode()) for prompt in PROMPTS], TOKENS)
    wrong = [fault for prompt, (whole, _, _) in zip(PROMPTS, runs) if (fault := compare_greedy(model, prompt, whole))]
    print(f"greedy: {len(PROMPTS) - len(wrong)} of {len(PROMPTS)} prompts have {TOKENS} tokens of the model in double precision")
    for fault in faults + wrong:
        print(fault)
    return 1 if faults + wrong else 0


sys.exit(main())

#!/usr/bin/env python3
"""GPT-2 as Hugging Face has it: an oracle for the model of weir-gpt, and for the names and layouts of its files.

Makes a small GPT-2 over bytes with random weights and writes to a folder:

    model.safetensors   as transformers saves it: its names, q, k and v in one matrix, the head tied to wte
    text                the bytes that it is asked about
    logits              f32 [bytes, 256]: computed in double precision

    python3 -m venv V && V/bin/pip install torch transformers
    V/bin/python tests/reference/gpt2_hugging_face.py FOLDER
"""
import os
import sys

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

LAYERS, DIM, HEADS, SEQ = 2, 48, 3, 40
TEXT = b"A weir is a low dam across a river.\n\x00\xff.."


def main(folder):
    torch.manual_seed(7)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=SEQ, n_embd=DIM, n_layer=LAYERS, n_head=HEADS,
                                       bos_token_id=0, eos_token_id=0))
    with torch.no_grad():
        for name, value in model.named_parameters():  # large enough that every part of the model shows
            value.copy_(torch.randn_like(value) * (0.3 if value.dim() > 1 else 0.2) + ("ln" in name and "weight" in name))
    model.save_pretrained(folder, safe_serialization=True)
    tokens = torch.tensor([list(TEXT)])
    with torch.no_grad():
        logits = model.double().eval()(tokens).logits[0]
    logits.numpy().astype(np.float32).tofile(os.path.join(folder, "logits"))
    with open(os.path.join(folder, "text"), "wb") as file:
        file.write(TEXT)


if __name__ == "__main__":
    main(sys.argv[1])

"""Runs apps/examples/vad.c with Silero VAD over a made-up recording, and compares the probability of each window with ONNX
Runtime's: they may differ by 1e-4. The recording has silence, noise, and a voice of harmonics that glide and are shaped by the
resonances of vowels, which the model takes for speech.

    vad.py VAD PLACE

Exit status 1: something differs.
"""
import glob
import os
import subprocess
import sys
import wave

import numpy as np
import onnxruntime

VAD, PLACE = sys.argv[1:]
RATE, WINDOW, CONTEXT = 16000, 512, 64
random = np.random.default_rng(4711)


def voice(seconds):
    """Harmonics of a gliding pitch, shaped by two resonances that move, in syllables."""
    t = np.arange(int(seconds * RATE)) / RATE
    phase = 2 * np.pi * np.cumsum(120 + 20 * np.sin(2 * np.pi * 0.7 * t)) / RATE
    first, second = 550 + 200 * np.sin(2 * np.pi * 2.1 * t), 1500 + 500 * np.sin(2 * np.pi * 1.3 * t)
    x = np.zeros_like(t)
    for k in range(1, 30):
        pitch = k * np.gradient(phase) * RATE / 2 / np.pi
        x += np.sin(k * phase) * (1 / (1 + ((pitch - first) / 90) ** 2) + 0.5 / (1 + ((pitch - second) / 120) ** 2) + 0.02)
    return x * (0.55 + 0.45 * np.sin(2 * np.pi * 4 * t)) / 4


def recording(path):
    parts = [np.zeros(RATE), voice(1.5), np.zeros(RATE), 0.02 * random.standard_normal(RATE), voice(0.8), np.zeros(RATE // 2 + 77)]
    samples = (np.clip(np.concatenate(parts), -1, 1) * 32000).astype("<i2")
    with wave.open(path, "wb") as to:
        to.setnchannels(1)
        to.setsampwidth(2)
        to.setframerate(RATE)
        to.writeframes(samples.tobytes())
    return samples.astype(np.float32) / 32768


def wanted(model, x):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    state, x, found = np.zeros((2, 1, 128), np.float32), np.pad(x, (CONTEXT, -len(x) % WINDOW)), []
    for at in range(0, len(x) - CONTEXT, WINDOW):
        feed = {"input": x[None, at:at + CONTEXT + WINDOW], "state": state, "sr": np.array(RATE, np.int64)}
        output, state = session.run(["output", "stateN"], feed)
        found.append(output[0, 0])
    return np.array(found)


def said(*args):
    return subprocess.run([VAD, *args], capture_output=True, text=True, timeout=600, check=True).stdout


def main():
    model, path = glob.glob(f"{PLACE}/files/silero-vad/**/silero_vad.onnx", recursive=True)[0], f"{PLACE}/talk.wav"
    want = wanted(model, recording(path))
    got = np.array([float(line) for line in said(model, path, "probabilities").split()])
    far = np.max(np.abs(got - want)) if got.shape == want.shape else np.inf
    segments = said(model, path).splitlines()
    good = far <= 1e-4 and want.max() > 0.5 and len(segments) > 1
    print(f"{'ok  ' if good else 'WRONG'} vad: {len(want)} windows, {far:.1e} of ONNX Runtime; speech {', '.join(segments)}")
    return not good


sys.exit(main())

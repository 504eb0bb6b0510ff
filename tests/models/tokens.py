"""weir tokens beside Hugging Face's `tokenizers`, `sentencepiece` and `mistral-common`, on the tree's text and random characters.

    python tests/models/tokens.py WEIR FOLDER [GGUF]
    python tests/models/tokens.py --write tests/apps/tokens      the files of test_tokenizer: small tokenizers, and the ids of a text
    python tests/models/tokens.py --write-small tests/apps/tokens      those of other forms than byte-level tokenizer.json alone

Makes a tokenizer.json for each of the patterns below, trained on the tree's own text, and 100,000 lines: half of them are the tree's, half
are random characters that Unicode 14 assigns, with special tokens between them. The ids have to be equal, line by line, and the text of
the ids has to be the lines. The GGUF file of SmolLM2 has its tokenizer rebuilt for the reference. Tokenizers with the settings of
Llama 2, Mistral, Gemma and Qwen (families.py), and the files of `mistral-common`, encode all lines as one text.
"""
import glob
import json
import pathlib
import random
import struct
import subprocess
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import families
from families import FIRST, LLAMA3, LOWER, QWEN2, SLASH, UPPER, sources

LINES = 100_000
ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
GPT4O = f"{FIRST}{UPPER}*{LOWER}+{ENDING}|{FIRST}{UPPER}+{LOWER}*{ENDING}" + r"|\p{N}{1,3}" + SLASH
# DeepSeek-V3's third pattern: after numbers, and after Chinese and Japanese characters.
DEEPSEEK = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
            r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>"]
# GPT-2's byte table
BYTES = [*range(33, 127), *range(161, 173), *range(174, 256)]
BYTE_CHARS = [chr(b) for b in BYTES]
BYTES += (rest := [b for b in range(256) if b not in BYTES])
BYTE_CHARS += [chr(256 + i) for i in range(len(rest))]
USERS = ["<turn>", "\n\n", "\u2581\u2581"] # pieces that stay whole


def split(*patterns, behavior="isolated", invert=False):
    parts = [pre_tokenizers.Split(Regex(pattern), behavior, invert) for pattern in patterns]
    return pre_tokenizers.Sequence(parts + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


PATTERNS = {
    "gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "gpt2-space": pre_tokenizers.ByteLevel(add_prefix_space=True),
    "llama3": split(LLAMA3),
    "qwen2": split(QWEN2, behavior="removed", invert=True),
    "gpt4o": split(GPT4O),
    "deepseek": split(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK),
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]),
}


def train(name, folder, size=20000):
    t = Tokenizer(models.BPE(ignore_merges=name in ("llama3", "gpt4o")))
    t.pre_tokenizer, t.decoder = PATTERNS[name], decoders.ByteLevel()
    t.train(sources(), trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIAL, show_progress=False,
                                           initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_special_tokens(["<|eot|>"])
    t.add_tokens([AddedToken("<mask>", lstrip=True, normalized=False), AddedToken("  tool", rstrip=True), "<|im_start|>x", "né"])
    path = folder / f"{name}.json"
    t.save(str(path), pretty=False)
    return t, path


def make_lines():
    draw = random.Random(1)
    assigned = [c for c in range(1, 0x110000) if c not in (10, 13) and unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    common = list(range(32, 127)) + [9, 0x85, 0xa0, 0xe9, 0x17f, 0x180e, 0x200b, 0x2028, 0x3000, 0x4e2d, 0x1f600, 0x301]
    words = SPECIAL + ["<|eot|>", "<mask>", "  tool", "<|im_start|>x", "né", "'s", "'LL", "'ſ", "   ", "\t\t", "1234567", " \r", "!\r\r", "house"]
    lines = [line for f in sources() for line in open(f, encoding="utf-8", newline="\n").read().split("\n")]
    lines = draw.choices(lines, k=LINES // 2)
    while len(lines) < LINES:
        kind = draw.random()
        pick = lambda: draw.choice(words) if draw.random() < 0.15 else chr(draw.choice(common if kind < 0.5 else assigned))
        lines.append("".join(pick() for _ in range(draw.randint(0, 40))))
    draw.shuffle(lines)
    return lines


def run(weir, verb, tokenizer, text, *options):
    done = subprocess.run([weir, "tokens", verb, "--tokenizer", str(tokenizer), *options], input=text, stdout=subprocess.PIPE, check=True)
    return done.stdout


def ids_of(weir, path, text, *options):
    """The ids of each of several texts that one end token follows."""
    raw = run(weir, "encode", path, text, "--as", "u32", *options)[1024:]
    return list(struct.unpack(f"<{len(raw) // 4}I", raw))


def compare(weir, name, reference, path, lines, lossless=True):
    """Line by line where a token that ends a line keeps them apart; then all lines as one text."""
    end = reference.token_to_id(SPECIAL[0])
    text = "".join(line + SPECIAL[0] for line in lines)
    ours, theirs = ids_of(weir, path, text.encode()), []
    for encoding in reference.encode_batch(lines, add_special_tokens=False):
        theirs += encoding.ids + [end]
    whole = "\r\n".join(lines[:5000])
    pairs = [("lines", ours, theirs), ("one text", ids_of(weir, path, whole.encode()), reference.encode(whole, add_special_tokens=False).ids)]
    reference.encode_special_tokens = True
    pairs.append(("plain", ids_of(weir, path, whole.encode(), "--plain"), reference.encode(whole, add_special_tokens=False).ids))
    reference.encode_special_tokens = False
    faults = []
    for what, a, b in pairs:
        if a != b:
            at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
            begin = max(0, at - 5)
            faults.append(f"{name}: {what}: id {at} differs: {a[begin:at + 5]}, not {b[begin:at + 5]}: {reference.decode(b[begin:at + 5], False)!r}")
    plain = "\n".join(line for line in lines if "<mask>" not in line and "  tool" not in line).encode() # these take spaces
    binary = run(weir, "encode", path, plain, "--as", "u16")
    if lossless and run(weir, "decode", path, binary, "--as", "u16") != plain:
        faults.append(f"{name}: the text of the ids is another text")
    print(f"{name}: {len(lines)} lines, {len(text.encode())} bytes, {len(theirs)} ids" + (", NOT THE SAME" if faults else ""))
    return faults


def compare_whole(weir, name, encode, path, lines, normal=lambda text: text, ends=None):
    """All lines as one text; and the text of the ids, which is the text in the tokenizer's normal form."""
    text = "\n".join(lines)
    ours, theirs = ids_of(weir, path, text.encode(), "--plain"), encode(text)
    faults = []
    if ours != theirs:
        at = next((i for i, (x, y) in enumerate(zip(ours, theirs)) if x != y), min(len(ours), len(theirs)))
        faults.append(f"{name}: id {at} differs: {ours[max(0, at - 5):at + 5]}, not {theirs[max(0, at - 5):at + 5]}")
    back = run(weir, "decode", path, run(weir, "encode", path, text.encode(), "--plain", "--as", "u32"), "--as", "u32").decode()
    if back != normal(text):
        at = next((i for i, (x, y) in enumerate(zip(back, normal(text))) if x != y), 0)
        faults.append(f"{name}: the text of the ids is another text: {back[at:at + 20]!r}, not {normal(text)[at:at + 20]!r}")
    if ends is not None and ids_of(weir, path, b"a text", "--ends") != ends("a text"):
        faults.append(f"{name}: --ends: {ids_of(weir, path, b'a text', '--ends')}, not {ends('a text')}")
    print(f"{name}: {len(lines)} lines as one text, {len(theirs)} ids" + (", NOT THE SAME" if faults else ""))
    return faults


def compare_families(weir, folder, lines):
    faults, unmark = [], lambda text: text.replace("\u2581", " ")
    forms = {"qwen2": lambda text: t.normalizer.normalize_str(text), "nfkc-marks": lambda text: unmark(t.normalizer.normalize_str(text))[1:]}
    for name in ["qwen2", "llama3", *families.MARKS]:
        t = families.train(name, folder)
        t.encode_special_tokens = True
        normal = forms.get(name, unmark if name in families.MARKS else lambda text: text)
        faults += compare_whole(weir, name, lambda text: t.encode(text, add_special_tokens=False).ids, folder / f"family-{name}.json", lines, normal,
                                lambda text: t.encode(text).ids)
    return faults


def compare_mistral(weir, lines):
    """The files of mistral-common: SentencePiece models, and tekken.json."""
    import mistral_common
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    from sentencepiece import SentencePieceProcessor
    faults = []
    for path in sorted((pathlib.Path(mistral_common.__file__).parent / "data").iterdir()):
        if ".model" in path.name:
            model = SentencePieceProcessor(model_file=str(path))
            faults += compare_whole(weir, path.name, model.encode, path, lines, lambda text: text.replace("\u2581", " "),
                                    lambda text: model.encode(text, add_bos=True))
        elif path.suffix == ".json":
            model = Tekkenizer.from_file(path)
            faults += compare_whole(weir, path.name, lambda text: model.encode(text, bos=False, eos=False), path, lines)
    return faults


def compare_trained(weir, folder, lines):
    """SentencePiece models with other settings, trained on the tree's text; and the same as a GGUF file."""
    import sentencepiece
    faults = []
    for name, settings in {"bpe": {}, "bpe-gemma": {"add_dummy_prefix": False, "user_defined_symbols": USERS},
                           "bpe-unknown": {"byte_fallback": False}}.items():
        settings = {"byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False} | settings
        path = folder / f"{name}.model"
        if not path.exists():
            sentencepiece.SentencePieceTrainer.train(input=",".join(f for f in sources() if f.endswith(".c")), model_prefix=str(folder / name),
                                                     vocab_size=4000, model_type="bpe", minloglevel=2, **settings)
        model = sentencepiece.SentencePieceProcessor(model_file=str(path))
        text = "\n".join(lines)
        for kind, file in (("model", path), ("GGUF", folder / f"{name}.gguf")):
            if kind == "GGUF":
                put_pieces(file, model, settings.get("add_dummy_prefix", True))
            ours, theirs = ids_of(weir, file, text.encode(), "--plain"), model.encode(text)
            print(f"{name}, {kind}: {len(theirs)} ids" + (", NOT THE SAME" if ours != theirs else ""))
            if ours != theirs:
                at = next((i for i, (x, y) in enumerate(zip(ours, theirs)) if x != y), min(len(ours), len(theirs)))
                faults.append(f"{name}, {kind}: id {at}: {ours[max(0, at - 5):at + 5]}, not {theirs[max(0, at - 5):at + 5]}")
    return faults


def read_gguf(path):
    """The metadata of a GGUF file."""
    data, at = open(path, "rb").read(64 << 20), 8
    kinds = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def take(form):
        nonlocal at
        value = struct.unpack_from("<" + form, data, at)[0]
        at += struct.calcsize(form)
        return value

    def value(kind):
        nonlocal at
        if kind == 8:
            length = take("Q")
            at += length
            return data[at - length:at].decode()
        if kind == 9:
            inner, count = take("I"), take("Q")
            return [value(inner) for _ in range(count)]
        return take(kinds[kind])

    take("Q")
    return {value(8): value(take("I")) for _ in range(take("Q"))}


def from_gguf(path):
    """The reference for SmolLM2's file: its tokens and merges with the pattern of its tokenizer.json."""
    meta = read_gguf(path)
    assert meta["tokenizer.ggml.pre"] == "smollm", meta["tokenizer.ggml.pre"]
    tokens, unknown = meta["tokenizer.ggml.tokens"], meta.get("tokenizer.ggml.unknown_token_id")
    t = Tokenizer(models.BPE({text: i for i, text in enumerate(tokens)}, [tuple(m.split(" ")) for m in meta["tokenizer.ggml.merges"]],
                             unk_token=None if unknown is None else tokens[unknown]))
    t.pre_tokenizer, t.decoder = PATTERNS["smollm"], decoders.ByteLevel()
    t.add_special_tokens([tokens[i] for i, kind in enumerate(meta["tokenizer.ggml.token_type"]) if kind in (2, 3)])
    return t, set(pre_tokenizers.ByteLevel.alphabet()) <= set(tokens)


TEXT = """The plan can't deadlock; we'LL see it's "proved" (12345 steps), né <|endoftext|>naïve<|im_start|>x  tool <mask>.

\tint x = 0x1f;   /* 3.14 */\r
\r\n  \u00a0\u3000\u180e\u2028 'ſ don't DON'T 中文字符，。 日本語テスト 한국어 ١٢٣ ½ Ⅷ 🙂👩‍👩‍👧 e\u0301 \u0301\u200b ﬀ ǅ ª \x00\x7f\u0085  <|eot|><|en
                """


def put_metadata(path, pairs):
    """A GGUF file of metadata alone. Values are texts, numbers, truths and lists of (kind, values)."""
    def text(s):
        return struct.pack("<Q", len(s.encode())) + s.encode()

    def value(v):
        if isinstance(v, str):
            return struct.pack("<I", 8) + text(v)
        if isinstance(v, bool):
            return struct.pack("<I?", 7, v)
        if isinstance(v, int):
            return struct.pack("<II", 4, v)
        kind, values = v
        parts = [text(x) if kind == 8 else struct.pack({5: "<i", 6: "<f"}[kind], x) for x in values]
        return struct.pack("<IIQ", 9, kind, len(parts)) + b"".join(parts)

    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + b"".join(text(k) + value(v) for k, v in pairs.items()))


def put_gguf(path, tokens, merges):
    put_metadata(path, {"general.architecture": "llama", "llama.block_count": 1, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
                        "tokenizer.ggml.merges": (8, [f"{a} {b}" for a, b in merges]), "tokenizer.ggml.tokens": (8, [t for t, kind in tokens]),
                        "tokenizer.ggml.token_type": (5, [kind for t, kind in tokens])})


def put_pieces(path, model, prefix):
    """A SentencePiece model as a GGUF file."""
    ids = range(model.get_piece_size())
    kind = lambda i: 2 if model.is_unknown(i) else 3 if model.is_control(i) else 6 if model.is_byte(i) else 4 if model.id_to_piece(i) in USERS else 1
    put_metadata(path, {"general.architecture": "llama", "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": (8, [model.id_to_piece(i) for i in ids]),
                        "tokenizer.ggml.scores": (6, [model.get_score(i) for i in ids]), "tokenizer.ggml.token_type": (5, [kind(i) for i in ids]),
                        "tokenizer.ggml.add_space_prefix": prefix, "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2})


def write(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text").write_text(TEXT, newline="")
    for name in PATTERNS:
        t, path = train(name, folder, 400)
        encode = lambda: "".join(f"{i}\n" for i in t.encode(TEXT, add_special_tokens=False).ids)
        (folder / f"{name}.ids").write_text(encode())
        t.encode_special_tokens = True
        (folder / f"{name}.plain").write_text(encode())
    model = json.loads((folder / "smollm.json").read_text())
    tokens = [(text, 1) for text, i in sorted(model["model"]["vocab"].items(), key=lambda pair: pair[1])]
    tokens[:2] = [(text, 3) for text in SPECIAL]
    t = Tokenizer.from_str(json.dumps(model | {"added_tokens": model["added_tokens"][:2]}))
    put_gguf(folder / "small.gguf", tokens, model["model"]["merges"])
    (folder / "small.ids").write_text("".join(f"{i}\n" for i in t.encode(TEXT, add_special_tokens=False).ids))


def write_small(folder):
    """Small tokenizers of the other forms: marks, NFC, SentencePiece, GGUF of it, tekken.json."""
    import base64
    import sentencepiece
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    put = lambda name, ids: (folder / f"{name}.ids").write_text("".join(f"{i}\n" for i in ids))
    families.sources = lambda: ["docs/plan.md"]
    for name, family in {"llama2": "llama2", "metaspace": "llama2-first", "gemma": "gemma", "nfc": "qwen2"}.items():
        t = (families.train_byte_level if family in families.BYTE_LEVEL else families.train_marks)(family, 720)
        t.save(str(folder / f"{name}.json"), pretty=False)
        put(name, t.encode(TEXT, add_special_tokens=False).ids)
        (folder / f"{name}.ends").write_text("".join(f"{i}\n" for i in t.encode("a text").ids))
    sentencepiece.SentencePieceTrainer.train(input="docs/plan.md", model_prefix=str(folder / "piece"), vocab_size=500, model_type="bpe", minloglevel=2,
                                             byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
                                             user_defined_symbols=USERS)
    (folder / "piece.vocab").unlink()
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "piece.model"))
    put_pieces(folder / "piece.gguf", model, True)
    put("piece", model.encode(TEXT))
    made = json.loads((folder / "nfc.json").read_text())["model"]
    byte = {c: b for b, c in zip(BYTES, BYTE_CHARS)}
    vocab = [bytes([i]) for i in range(256)] + [bytes(byte[c] for c in a + b) for a, b in made["merges"]]
    vocab = list(dict.fromkeys(vocab))
    tokens = [{"rank": i, "token_bytes": base64.b64encode(v).decode(), "token_str": None} for i, v in enumerate(vocab)]
    config = {"pattern": families.TEKKEN, "num_vocab_tokens": len(vocab), "default_vocab_size": len(vocab) + 30, "default_num_special_tokens": 30, "version": "v3"}
    (folder / "tekken.json").write_text(json.dumps({"config": config, "vocab": tokens}, separators=(",", ":")))
    put("tekken", Tekkenizer.from_file(folder / "tekken.json").encode(TEXT, bos=False, eos=False))


def main(weir, folder, gguf=None):
    if weir == "--write":
        return write(folder) or write_small(pathlib.Path(folder))
    if weir == "--write-small":
        return write_small(pathlib.Path(folder))
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lines, faults = make_lines(), []
    for name in PATTERNS:
        faults += compare(weir, name, *train(name, folder), lines, name != "gpt2-space")
    if gguf:
        reference, has_all_bytes = from_gguf(gguf)
        faults += compare(weir, "SmolLM2.gguf", reference, gguf, lines, has_all_bytes)
    faults += compare_families(weir, folder, lines) + compare_mistral(weir, lines) + compare_trained(weir, folder, lines)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


sys.exit(main(*sys.argv[1:]))

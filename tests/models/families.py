"""Tokenizers with the settings of the families that models have, trained on the tree's own text: for tokens.py and chats.py."""
import glob
import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + REST
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + REST
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
FIRST, SLASH = r"[^\r\n\p{L}\p{N}]?", REST.replace(r"[\r\n]*", r"[\r\n/]*", 1)
TEKKEN = f"{FIRST}{UPPER}*{LOWER}+|{FIRST}{UPPER}+{LOWER}*" + r"|\p{N}" + SLASH

CHAT = ["<|im_start|>", "<|im_end|>", "<|im_sep|>"]
BYTE_LEVEL = {
    # name: pattern, special tokens, others
    "smollm": (None, ["<|endoftext|>", *CHAT], []),
    "qwen2": (QWEN2, ["<|endoftext|>", *CHAT], ["<think>", "</think>"]),
    "llama3": (LLAMA3, ["<|begin_of_text|>", "<|end_of_text|>", "<|endoftext|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", *CHAT], []),
    "tekken": (TEKKEN, ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"], []),
}
MARKS = {
    # name: normalizer, pre_tokenizer, decoder strips, special tokens, others
    "llama2": (normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None, True,
               ["<unk>", "<s>", "</s>", "<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"], []),
    "llama2-first": (None, pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False), True, ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"], []),
    "metaspace": (None, pre_tokenizers.Metaspace("▁"), True, ["<unk>", "<s>", "</s>"], []),
    "gemma": (normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"), False,
              ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"], ["\n\n", "▁▁", "<table>"]),
    "nfkc-marks": (normalizers.Sequence([normalizers.NFKC(), normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None, True, ["<unk>", "<s>", "</s>"], []),
}


def sources():
    return sorted(f for end in ("c", "h", "md", "py") for top in ("graph", "kernels", "apps", "docs", "tests", "actors")
                  for f in glob.glob(f"{top}/**/*.{end}", recursive=True))


def train_byte_level(name, size):
    pattern, special, others = BYTE_LEVEL[name]
    t = Tokenizer(models.BPE(ignore_merges=name in ("llama3", "tekken")))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    first = pre_tokenizers.Split(Regex(pattern), "isolated") if pattern else pre_tokenizers.Digits(individual_digits=True)
    t.pre_tokenizer, t.decoder = pre_tokenizers.Sequence([first, byte_level]), decoders.ByteLevel()
    if name == "qwen2":
        t.normalizer = normalizers.NFC()
    t.train(sources(), trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                           initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_tokens(others)
    if name == "llama3":
        t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
            "<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))])])
    return t


def train_marks(name, size):
    normalizer, pre, strips, special, others = MARKS[name]
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizer or normalizers.Sequence([])
    t.pre_tokenizer = pre_tokenizers.Metaspace("▁") # words alone are learned
    data = [f"<0x{byte:02X}>" for byte in range(256)]
    t.train(sources(), trainers.BpeTrainer(vocab_size=size, special_tokens=special + data, show_progress=False, limit_alphabet=300))
    made = json.loads(t.to_str())
    made["added_tokens"] = [a for a in made["added_tokens"] if a["content"] not in data]
    made["pre_tokenizer"] = None
    t = Tokenizer.from_str(json.dumps(made))
    if pre:
        t.pre_tokenizer = pre
    if normalizer is None:
        t.normalizer = None
    t.add_tokens([AddedToken(text, normalized=False) for text in others])
    if name == "llama2": # Phi-3's tokens take the white space behind them
        t.add_special_tokens([AddedToken(text, rstrip=True, normalized=False, special=True) for text in special[4:]])
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()] + ([decoders.Strip(" ", 1, 0)] if strips else [])
    t.decoder = decoders.Sequence(parts)
    begin = "<bos>" if name == "gemma" else "<s>"
    t.post_processor = processors.TemplateProcessing(f"{begin} $A", special_tokens=[(begin, t.token_to_id(begin))])
    return t


def train(name, folder, size=8000):
    """The tokenizer, from a file if it was made before."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"family-{name}.json"
    if not path.exists():
        (train_byte_level if name in BYTE_LEVEL else train_marks)(name, size).save(str(path), pretty=False)
    return Tokenizer.from_file(str(path))

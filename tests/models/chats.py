"""weir tokens chat beside transformers and mistral-common.

    python tests/models/chats.py WEIR FOLDER [GGUF]
    python tests/models/chats.py --write tests/apps/chats      the files of test_chat

The templates are those that the families' files have. Their tokenizers are no packages, so each gets one that is trained on the tree's
text with the settings of the family (families.py), and transformers renders and encodes the conversations with it.
"""
import json
import pathlib
import subprocess
import sys

import families

CHATS = {
    "user": [("user", "Hello, who are you?")],
    "turns": [("user", "Why is the sky blue?"), ("assistant", "Because of Rayleigh.\nIt scatters light."), ("user", "  Really? ")],
    "system": [("system", "Be brief. "), ("user", "Count to three")],
    "system turns": [("system", "You know C."), ("user", "int x;"), ("assistant", "\nA declaration. "), ("user", "  \n and y?\n")],
    "trained": [("user", "2 + 2"), ("assistant", "It is 4. "), ("user", "naïve é\u0301 中文 🙂"), ("assistant", "fin")],
    "system trained": [("system", "Talk."), ("user", "a"), ("assistant", "b")],
    "thoughts": [("user", "q"), ("assistant", "<think>\nhm\n</think>\n\nA"), ("user", "r"), ("assistant", "<think>\nso so\n</think>\n\nB")],
}

LLAMA2 = ("{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}"
          "{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != "
          "(loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
          "{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
          "{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
          "{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}")
MISTRAL1 = ("{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles "
            "must alternate user/assistant/user/assistant/...') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
            "{% elif message['role'] == 'assistant' %}{{ REPLY }}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}"
            "{% endif %}{% endfor %}")
MISTRAL3 = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- for message in loop_messages %}
    {%- if (message["role"] == "user") != (loop.index0 % 2 == 0) %}
        {{- raise_exception("After the optional system message, conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- endif %}
{%- endfor %}
"""
NEMO = MISTRAL3.replace('"[INST] "', '"[INST]"').replace('" " + message["content"]|trim', 'message["content"]')
SMOLLM2 = ("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
           "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + "
           "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
QWEN2 = SMOLLM2.replace("AI assistant named SmolLM, trained by Hugging Face", "assistant.").replace("\n", "\\n")
QWEN25 = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' }}
    {%- endif %}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
QWEN3 = """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""
LLAMA3 = ("{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + "
          "'<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
          "{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}")
LLAMA31 = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
GEMMA = ("{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}"
         "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
         "{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}"
         "{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}"
         "{{'<start_of_turn>model\\n'}}{% endif %}")
GEMMA3 = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\\n'}}
{%- endif -%}
"""
PHI3 = ("{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'user' %}"
        "{{'<|user|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>\\n' + message['content'] + '<|end|>\\n'}}"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}")
PHI4 = ("{% for message in messages %}{% if (message['role'] == 'system') %}{{'<|im_start|>system<|im_sep|>' + message['content'] + '<|im_end|>'}}"
        "{% elif (message['role'] == 'user') %}{{'<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>'}}{% elif (message['role'] == 'assistant') %}"
        "{{'<|im_start|>assistant<|im_sep|>' + message['content'] + '<|im_end|>'}}{% endif %}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}")

# name: the tokenizer's family, the template, begin and end token
TEMPLATES = {
    "SmolLM2": ("smollm", SMOLLM2, "<|im_start|>", "<|im_end|>"),
    "Qwen2": ("qwen2", QWEN2, None, "<|im_end|>"),
    "Qwen2.5": ("qwen2", QWEN25, None, "<|im_end|>"),
    "Qwen3": ("qwen2", QWEN3, None, "<|im_end|>"),
    "Llama 3": ("llama3", LLAMA3, "<|begin_of_text|>", "<|end_of_text|>"),
    "Llama 3.1": ("llama3", LLAMA31, "<|begin_of_text|>", "<|end_of_text|>"),
    "Phi-4": ("llama3", PHI4, "<|endoftext|>", "<|endoftext|>"),
    "Llama 2": ("llama2", LLAMA2, "<s>", "</s>"),
    "Llama 2, first": ("llama2-first", LLAMA2, "<s>", "</s>"),
    "Mistral v0.1": ("llama2", MISTRAL1.replace("REPLY", "message['content'] + eos_token + ' '"), "<s>", "</s>"),
    "Mistral v0.2": ("llama2", MISTRAL1.replace("REPLY", "message['content'] + eos_token"), "<s>", "</s>"),
    "Mistral v0.2, spaces": ("llama2", MISTRAL1.replace("REPLY", "' ' + message['content'] + eos_token"), "<s>", "</s>"),
    "Mistral v0.3": ("llama2-first", MISTRAL3, "<s>", "</s>"),
    "Mistral Nemo": ("tekken", NEMO, "<s>", "</s>"),
    "Gemma": ("gemma", GEMMA, "<bos>", "<eos>"),
    "Gemma 3": ("gemma", GEMMA3, "<bos>", "<eos>"),
    "Phi-3": ("llama2", PHI3, "<s>", "<|endoftext|>"),
}


def ask(weir, tokenizer, messages, *options):
    """The ids, and the marked ones; None: the conversation is refused."""
    chat = json.dumps({"messages": messages})
    done = subprocess.run([weir, "tokens", "chat", "--tokenizer", str(tokenizer), "--mark", *options], input=chat.encode(), capture_output=True)
    if done.returncode:
        return None, done.stderr.decode()
    parts = done.stdout.decode().split()
    return [int(p.rstrip("*")) for p in parts], [int(p[:-1]) for p in parts if p.endswith("*")]


def check_marks(tokenizer, name, messages, marked, end):
    """The marked text holds the replies, each with its end."""
    text = tokenizer.decode(marked, clean_up_tokenization_spaces=False)
    replies = [m["content"].split("</think>")[-1].strip() for m in messages if m["role"] == "assistant"]
    if not all(r in text for r in replies) or text.count(end) != len(replies):
        return [f"{name}: the marked ids are {text!r}"]
    return []


def compare_templates(weir, folder):
    import transformers
    faults = []
    for name, (family, template, begin, end) in TEMPLATES.items():
        place = folder / name.replace(" ", "-").replace(",", "")
        place.mkdir(parents=True, exist_ok=True)
        families.train(family, folder).save(str(place / "tokenizer.json"))
        config = {"chat_template": template, "eos_token": end, "tokenizer_class": "PreTrainedTokenizerFast"} | ({"bos_token": begin} if begin else {})
        (place / "tokenizer_config.json").write_text(json.dumps(config))
        reference = transformers.PreTrainedTokenizerFast(tokenizer_file=str(place / "tokenizer.json"), bos_token=begin, eos_token=end)
        reference.chat_template = template
        count = 0
        for kind, talk in CHATS.items():
            messages = [{"role": role, "content": content} for role, content in talk]
            for options in ([], ["--open"]):
                ours, marked = ask(weir, place, messages, *options)
                try:
                    theirs = reference.apply_chat_template(messages, tokenize=False, add_generation_prompt=bool(options))
                    theirs = reference(theirs, add_special_tokens=False)["input_ids"]
                except Exception as e:
                    theirs = None
                if ours != theirs:
                    faults.append(f"{name}: {kind} {options}: {ours or marked}, not {theirs}: {theirs and reference.decode(theirs)!r}")
                elif ours and not options:
                    stop = {"Llama": "<|eot_id|>" if "3" in name else "</s>", "Phi-3": "<|end|>", "Phi-4": "<|im_end|>", "Gemma": "<end_of_turn>"}
                    faults += check_marks(reference, f"{name}: {kind}", messages, marked, stop.get(name.split(" ")[0], end))
                count += ours is not None
        print(f"{name}: {count} conversations" + (", NOT THE SAME" if any(f.startswith(name) for f in faults) else ""))
    return faults


def compare_mistral(weir, folder):
    """tekken.json, by its version."""
    import mistral_common
    from mistral_common.protocol.instruct.messages import AssistantMessage, SystemMessage, UserMessage
    from mistral_common.protocol.instruct.request import ChatCompletionRequest
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
    faults, kinds = [], {"user": UserMessage, "assistant": AssistantMessage, "system": SystemMessage}
    for path in sorted((pathlib.Path(mistral_common.__file__).parent / "data").glob("tekken_*.json")):
        for version in ("v3", "v7"):
            data = json.loads(path.read_text())
            data["config"]["version"] = version
            place = folder / f"tekken-{version}-{path.stem}"
            place.mkdir(parents=True, exist_ok=True)
            (place / "tekken.json").write_text(json.dumps(data))
            reference, count = MistralTokenizer.from_file(str(place / "tekken.json")), 0
            for kind, talk in CHATS.items():
                if talk[-1][0] != "user": # the reference's requests end with the user
                    continue
                ours, why = ask(weir, place, [{"role": role, "content": content} for role, content in talk])
                theirs = reference.encode_chat_completion(ChatCompletionRequest(messages=[kinds[role](content=content) for role, content in talk])).tokens
                count += 1
                if ours != theirs:
                    faults.append(f"{path.name} {version}: {kind}: {ours or why}, not {theirs}")
            print(f"{path.name} {version}: {count} conversations")
    return faults


def write(folder):
    """Small tokenizers with templates, and the ids of conversations that transformers makes: for tests/apps/test_chat.c."""
    import transformers
    families.sources = lambda: ["docs/plan.md"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "talks").write_text("".join(json.dumps({"messages": [{"role": r, "content": c} for r, c in CHATS[k]]}) + "\n" for k in ("user", "turns", "trained")))
    for name in ("SmolLM2", "Qwen3", "Llama 3.1", "Llama 2", "Mistral v0.3", "Gemma", "Phi-3"):
        family, template, begin, end = TEMPLATES[name]
        place = folder / name.lower().replace(" ", "").replace(".", "")
        place.mkdir(exist_ok=True)
        (families.train_byte_level if family in families.BYTE_LEVEL else families.train_marks)(family, 400 if family in families.BYTE_LEVEL else 640).save(
            str(place / "tokenizer.json"), pretty=False)
        (place / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, "eos_token": end} | ({"bos_token": begin} if begin else {})))
        t = transformers.PreTrainedTokenizerFast(tokenizer_file=str(place / "tokenizer.json"), bos_token=begin, eos_token=end)
        t.chat_template = template
        for file, opens in (("ids", False), ("open", True)):
            texts = [t.apply_chat_template([{"role": r, "content": c} for r, c in CHATS[k]], tokenize=False, add_generation_prompt=opens)
                     for k in ("user", "turns", "trained")]
            (place / file).write_text("".join(" ".join(map(str, t(text, add_special_tokens=False)["input_ids"])) + "\n" for text in texts))


def main(weir, folder, gguf=None):
    folder = pathlib.Path(folder)
    if weir == "--write":
        return write(folder)
    faults = compare_templates(weir, folder) + compare_mistral(weir, folder)
    if gguf:
        ours, why = ask(weir, gguf, [{"role": "user", "content": "Hi"}], "--open")
        if not ours or len(ours) < 20:
            faults.append(f"{gguf}: {ours or why}")
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

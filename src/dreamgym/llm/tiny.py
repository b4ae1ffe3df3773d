"""A small Llama from scratch, with a tokenizer that makes text worlds cheap.

For machines without a GPU and without a model hub: a byte-level BPE in which an entity such as
`drawer 12` is one token and frequent phrases (`, you see a `) are one token, and a Llama of a few
million weights whose entity embeddings start as word + number.  Training lives elsewhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dreamgym.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

PAD, END = "<|pad|>", "<|end|>"
SPECIAL_TOKENS = (PAD, END, "<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content']"
    " + '<|end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
DEFAULT_MACROS = (
    "<think>",
    "</think>",
    "<action>",
    "</action>",
    '{"next_state":"',
    '","reward":0,"done":false}',
    '","reward":1,"done":true}',
)
"""Markup of the agent's and the experience model's replies: one token each by default."""

ENTITY = r"(?<![A-Za-z])[a-z]+ [0-9]+"
"""A word, a space and a number; spelled so that Python and Oniguruma read it alike."""
MAX_PHRASE = 32
"""Longest merged phrase in bytes: longer ones repeat whole sentences and generalise badly."""
_BYTES = 256
EMBEDDING_STD = 0.16
"""Initial scale of embeddings.  At Llama's usual 0.02 the first layers' outputs drown what a token
is, and a small model learns to copy from the prompt several times more slowly."""


def build_tokenizer(
    texts: Iterable[str],
    *,
    vocab_size: int = 2048,
    words: Sequence[str] = (),
    macros: Sequence[str] = DEFAULT_MACROS,
) -> PreTrainedTokenizerFast:
    """Train a lossless byte-level tokenizer with the chat template of this module.

    Every entity (`[a-z]+ [0-9]+`) that occurs in `texts`, every one of `words` (standing alone)
    and every one of `macros` (anywhere) is exactly one token.  What lies between them is a free
    chunk, split at newlines only, so that merges may span several words.

    Raises:
        ConfigError: when `vocab_size` cannot hold the bytes and the guaranteed tokens.
    """
    try:
        from tokenizers import Tokenizer
        from transformers import PreTrainedTokenizerFast
    except ImportError as error:
        raise MissingExtra("transformers", "train") from error
    corpus = list(texts)
    splitter = re.compile(_split_pattern(words, macros))
    reserved = sorted({*macros, *words, *_entities(corpus, splitter)})
    needed = len(SPECIAL_TOKENS) + _BYTES + len(reserved)
    if vocab_size < needed:
        raise ConfigError(
            f"vocab_size must be at least {needed} for these texts ({len(reserved)} entities, "
            f"words and macros that get a token each); got {vocab_size}; raise vocab_size"
        )
    chunks = _chunks(corpus, splitter)
    state = _train(chunks + _entity_parts(reserved), vocab_size - len(reserved))
    _add_whole_tokens(state, reserved)
    state["pre_tokenizer"] = _pre_tokenizer(words, macros)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(state)),
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=list(SPECIAL_TOKENS[2:]),
        clean_up_tokenization_spaces=False,
        padding_side="right",
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def entity_names(texts: Iterable[str]) -> list[str]:
    """Return the words of all entities in the texts, for `build_tokenizer(words=...)`.

    Merged into phrases, `plate` in a task sentence and `plate 1` in an observation would have
    nothing in common; as words of their own they start with related embeddings.

    >>> entity_names(["put a plate in drawer. a plate 1, and a mug 2"])
    ['mug', 'plate']
    """
    return sorted({e.split(" ")[0] for text in texts for e in re.findall(ENTITY, text)})


def build_model(
    tokenizer: PreTrainedTokenizerFast,
    *,
    hidden: int = 192,
    layers: int = 4,
    heads: int = 4,
    kv_heads: int = 1,
    intermediate: int = 512,
    max_context: int = 2048,
    seed: int = 0,
) -> LlamaForCausalLM:
    """Return an untrained float32 Llama with tied embeddings.

    The same seed gives the same weights; the global torch generator is left as it was.
    """
    try:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError as error:
        raise MissingExtra("transformers", "train") from error
    if hidden % heads or heads % kv_heads or (hidden // heads) % 2:
        raise ConfigError(
            "hidden must be an even multiple of heads and heads a multiple of kv_heads; "
            f"got hidden={hidden}, heads={heads}, kv_heads={kv_heads}"
        )
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=intermediate,
        max_position_embeddings=max_context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: LlamaForCausalLM = LlamaForCausalLM(config).to(torch.float32)
        embedding = model.get_input_embeddings().weight
        with torch.no_grad():
            embedding.copy_(_compositional(tokenizer, embedding, EMBEDDING_STD))
    return model.eval()


def _compositional(
    tokenizer: PreTrainedTokenizerFast, embedding: torch.Tensor, std: float
) -> torch.Tensor:
    """Return the embedding with entities as word + number + noise, [V, hidden].

    All rows keep the same scale: the parts have variance std²/2 and the noise a tenth of it.
    """
    import torch

    parts: dict[str, torch.Tensor] = {}

    def part(name: str) -> torch.Tensor:
        if name not in parts:
            parts[name] = torch.randn(embedding.shape[1]) * std * 0.5**0.5
        return parts[name]

    result = torch.randn(embedding.shape) * std
    texts = [tokenizer.decode([index]) for index in range(result.shape[0])]
    for index, text in enumerate(texts):
        if re.fullmatch(ENTITY, text):
            word, number = text.split(" ")
            noise = torch.randn(embedding.shape[1]) * std * 0.1**0.5
            result[index] = part(word) + part(number) + noise
    for index, text in enumerate(texts):
        # The bare word and the bare number start near the entities they are part of.
        if text.strip() in parts:
            noise = torch.randn(embedding.shape[1]) * std * 0.1**0.5
            result[index] = parts[text.strip()] + noise
    return result


def _split_pattern(words: Sequence[str], macros: Sequence[str]) -> str:
    """Return the pattern of pre-tokens that stand alone: macros, entities, words, newlines."""
    for name, values in (("words", words), ("macros", macros)):
        if any(not value for value in values):
            raise ConfigError(f"{name} must not contain an empty string; remove it")
    options = [_escape(macro) for macro in sorted(set(macros), key=lambda text: (-len(text), text))]
    options.append(ENTITY)
    for word in sorted(set(words), key=lambda text: (-len(text), text)):
        options.append(f"(?<![A-Za-z0-9]){_escape(word)}(?![A-Za-z0-9])")
    options.append(r"\n+")
    return "|".join(options)


def _escape(text: str) -> str:
    """Escape for both regex dialects: only ASCII punctuation may carry a backslash."""
    return re.sub(r"([\\.^$|?*+()\[\]{}\-/#&~])", r"\\\1", text)


def _entities(corpus: Sequence[str], splitter: re.Pattern[str]) -> set[str]:
    found = {match.group() for text in corpus for match in splitter.finditer(text)}
    return {text for text in found if re.fullmatch(ENTITY, text)}


def _chunks(corpus: Sequence[str], splitter: re.Pattern[str]) -> list[str]:
    return [
        chunk
        for text in corpus
        for chunk in (*splitter.split(text), *re.findall(r"\n+", text))
        if chunk
    ]


def _entity_parts(reserved: Sequence[str]) -> list[str]:
    """Return the words and numbers of the entities, for entities never seen together."""
    parts = {part for text in reserved if re.fullmatch(ENTITY, text) for part in text.split(" ")}
    return sorted(parts) * 2


# Any: the serialised tokenizer is the `tokenizers` package's own JSON document.
def _train(chunks: Sequence[str], vocab_size: int) -> dict[str, Any]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=MAX_PHRASE,
        show_progress=False,
    )
    tokenizer.train_from_iterator(chunks, trainer)
    state: dict[str, Any] = json.loads(tokenizer.to_str())
    return state


def _add_whole_tokens(state: dict[str, Any], texts: Sequence[str]) -> None:
    """Give each text a token of its own that the model picks before any merge.

    Ordinary vocabulary with `ignore_merges`, not added tokens: added tokens match anywhere, so
    `drawer 1` would be found inside `drawer 12`.
    """
    from tokenizers import pre_tokenizers

    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    vocab = state["model"]["vocab"]
    for text in texts:
        spelled = "".join(piece for piece, _ in byte_level.pre_tokenize_str(text))
        vocab.setdefault(spelled, len(vocab))
    state["model"]["ignore_merges"] = True


def _pre_tokenizer(words: Sequence[str], macros: Sequence[str]) -> dict[str, Any]:
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    holder = Tokenizer(models.BPE())
    holder.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_split_pattern(words, macros)), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    spec: dict[str, Any] = json.loads(holder.to_str())["pre_tokenizer"]
    return spec

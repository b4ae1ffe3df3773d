"""A sentence encoder from any Hugging Face folder: mean of the last hidden states.

For users who want neural similarity; needs the extra `train`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dreamgym.errors import ConfigError, MissingExtra, ModelError
from dreamgym.replay.encode import Vectors, unit_rows


class SentenceEncoder:
    """Mean-pooled encoder read from `model`, a folder or a name in the local cache.

    Texts longer than `max_tokens` tokens are cut.  `device` is a torch device name.  Raises
    `MissingExtra` without torch and transformers, `ConfigError` for a model that cannot be read.
    """

    def __init__(
        self, model: str | Path, *, max_tokens: int = 256, batch_size: int = 32,
        device: str = "cpu",
    ) -> None:  # fmt: skip
        try:
            import torch
            import transformers
        except ImportError as error:
            raise MissingExtra(error.name or "transformers", "train") from error
        try:
            # Any: neither class of transformers is typed
            self._tokenizer: Any = transformers.AutoTokenizer.from_pretrained(str(model))
            self._model: Any = transformers.AutoModel.from_pretrained(str(model))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"no encoder model can be read from {str(model)!r}; expected a folder with "
                f"config, weights and tokenizer ({str(error).splitlines()[0]})"
            ) from error
        self._model.eval().to(device)
        self._torch = torch
        self._device = device
        self._max_tokens = max_tokens
        self._batch_size = batch_size
        self.dim = int(self._model.config.hidden_size)
        self.name = f"sentence-{Path(model).name}-{max_tokens}"

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return shape (number of texts, dim); see `Encoder`. Raises `ModelError`."""
        result = np.zeros((len(texts), self.dim), np.float32)
        rows = [row for row, text in enumerate(texts) if text.strip()]
        rows.sort(key=lambda row: len(texts[row]))  # similar lengths share a batch: less padding
        for start in range(0, len(rows), self._batch_size):
            part = rows[start : start + self._batch_size]
            result[part] = self._pool([texts[row] for row in part])
        return result

    def _pool(self, texts: list[str]) -> Vectors:
        torch = self._torch
        try:
            batch = self._tokenizer(
                texts, padding=True, truncation=True, max_length=self._max_tokens,
                return_tensors="pt",
            ).to(self._device)  # fmt: skip
            with torch.inference_mode():
                hidden = self._model(**batch).last_hidden_state.float()
        except (RuntimeError, UnicodeError) as error:
            raise ModelError(f"encoder {self.name!r} failed: {error}") from error
        mask = batch["attention_mask"].unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1.0)
        return unit_rows(mean.cpu().numpy())

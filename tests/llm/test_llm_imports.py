from __future__ import annotations

import subprocess
import sys


def test_chat_seams_import_without_the_training_stack() -> None:
    names = (
        "base",
        "batching",
        "cache",
        "endpoint",
        "local",
        "models",
        "render",
        "scripted",
        "tiny",
    )
    code = (
        f"import sys; from dreamgym.llm import {', '.join(names)}; "
        "print(sorted({'torch', 'transformers', 'openai'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr

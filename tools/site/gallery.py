"""The gallery: one page per script of ``examples/``: what it says of itself, its code, its output, its picture."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
LEAD = (
    "Ten short scripts, each with its output and its picture. The tests run every one of them and compare what it "
    "prints with what is shown here."
)


def on_files(files: Files, config: Any) -> Files:
    """The pages, their pictures, and an index with a card for each."""
    cards = []
    for script in sorted(EXAMPLES.glob("*.py")):
        title, words = told(script)
        picture = EXAMPLES / "output" / f"{script.stem}.svg"
        files.append(File.generated(config, f"gallery/{picture.name}", abs_src_path=str(picture)))
        files.append(File.generated(config, f"gallery/{script.stem}.md", content=page(script, title, words)))
        cards.append(f"-   [![{title}]({picture.name})]({script.stem}.md)\n\n    [{title}]({script.stem}.md)\n")
    index = f'# Gallery\n\n{LEAD}\n\n<div class="grid cards gallery" markdown>\n\n' + "\n".join(cards) + "\n</div>\n"
    files.append(File.generated(config, "gallery/index.md", content=index))
    return files


def told(script: Path) -> tuple[str, str]:
    """The first line of a script's docstring without its full stop, and the rest."""
    title, _, words = (ast.get_docstring(ast.parse(script.read_text())) or script.stem).partition("\n")
    return title.rstrip("."), words.strip()


def page(script: Path, title: str, words: str) -> str:
    """What the script says, then the picture, the code and the output."""
    whole = script.read_text()
    code = whole[whole.index('"""', whole.index('"""') + 3) + 3 :].strip()
    printed = (EXAMPLES / "output" / f"{script.stem}.txt").read_text().rstrip()
    return (
        f"# {title}\n\n{words}\n\n![{title}]({script.stem}.svg)\n\n```python\n{code}\n```\n\n"
        f"It prints:\n\n```text\n{printed}\n```\n\nThe script is `examples/{script.name}`.\n"
    )

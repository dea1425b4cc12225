"""Ask the small model that ships with Foveate about three pictures: `python examples/demo.py`."""

from pathlib import Path

import foveate

PICTURES = Path(__file__).parent / "pictures"
QUESTIONS = {
    "scene.png": ("What colour is the star?", "What is in the middle of the picture?"),
    "receipt.png": ("What is the name of the shop?", "What is the total?"),
    "page.png": ("What is the title of this page?", "What is written under the heading Resigned?"),
}


def main() -> None:
    """Print each picture, each question and its answer."""
    vlm = foveate.load()
    for name, questions in QUESTIONS.items():
        print(f"examples/pictures/{name}")
        for question in questions:
            print(f"  {question} {vlm.describe(PICTURES / name, prompt=question).text}", flush=True)


if __name__ == "__main__":
    main()

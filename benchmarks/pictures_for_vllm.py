"""Write the JPEGs and the loads of `engine.py` as files, for `vllm_serving.py`.

python benchmarks/pictures_for_vllm.py FOLDER
"""

import argparse
import json
from pathlib import Path

from engine import LOADS, REFERENCE_LOADS

from foveate.bench.serving_pictures import drawn_jpegs


def main() -> None:
    """Write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    loads = []
    for (width, height), tokens, at_once in dict.fromkeys((*LOADS, *REFERENCE_LOADS)):
        names = []
        for number, data in enumerate(drawn_jpegs(width, height)):
            names.append(f"{width}x{height}-{number}.jpg")
            (folder / names[-1]).write_bytes(data)
        loads.append({"pictures": f"{width}x{height}", "output_tokens": tokens, "at_once": at_once, "files": names})
    (folder / "loads.json").write_text(json.dumps(loads, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

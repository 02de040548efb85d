"""Print the score of each module after `mutmut run`: `make mutants`. The mutants that no test noticed are named too.

`mutmut show NAME` prints the change that a mutant makes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

SURVIVED = (0, 5, 33)  # all tests passed; no test ran the function
UNTRIED = (None, 2, 34)  # not yet; interrupted; skipped


def main() -> int:
    print(f"{'MODULE':<40} {'MUTANTS':>8} {'NOTICED':>8} {'SCORE':>6}")
    survivors: list[str] = []
    for file in sorted(Path("mutants/src").rglob("*.py.meta")):
        codes: dict[str, int | None] = json.loads(file.read_text())["exit_code_by_key"]
        tried = {name: code for name, code in codes.items() if code not in UNTRIED}
        alive = sorted(name for name, code in tried.items() if code in SURVIVED)
        survivors += alive
        if tried:
            module = str(file.relative_to("mutants/src")).removesuffix(".meta")
            noticed = len(tried) - len(alive)
            print(f"{module:<40} {len(tried):>8} {noticed:>8} {noticed / len(tried):>6.0%}")
    if "--survivors" in sys.argv:
        print(*survivors, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

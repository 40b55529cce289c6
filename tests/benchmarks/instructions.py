"""Instructions per query of the harness itself, counted by callgrind: a gate without noise.

    python -m benchmarks.instructions [--against COMMIT] [--json FILE]

The null backend runs through the timed path of a leader alone, once with few queries and
once with many; the difference holds no start-up. The count depends on the build of Python
and of LoadGen and on nothing that happens on the machine, so a stored count would be worth
nothing elsewhere: the baseline is another commit, counted in the same call by its own
code. More than 3 % above it ends with status 1.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FEW, MANY = 500, 2_500
SCENARIOS = ("SingleStream", "MultiStream", "Offline", "Server")
ALLOWED_SHARE = 1.03
_ROOT = Path(__file__).parents[2]
_TOTAL = re.compile(r"Collected\s*:\s*(\d+)")


def main() -> int:
    """Count, print, compare."""
    parser = argparse.ArgumentParser(prog="benchmarks.instructions", description=__doc__)
    parser.add_argument("--against", metavar="COMMIT", help="the baseline")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the counts here")
    args = parser.parse_args()
    if shutil.which("valgrind") is None:
        sys.stderr.write("benchmarks.instructions: needs valgrind (apt install valgrind)\n")
        return 3
    counts = _counts(_ROOT)
    before = {} if args.against is None else _counts_of(args.against)
    if args.json is not None:
        args.json.write_text(json.dumps({"now": counts, "before": before}, indent=2) + "\n")
    return 1 if _tell(counts, before) else 0


def _tell(counts: dict[str, float], before: dict[str, float]) -> bool:
    """Print the counts; return whether one is too far above the baseline."""
    worse = False
    for scenario, count in counts.items():
        unit = "sample" if scenario == "Offline" else "query"
        beside = ""
        if scenario in before:
            ratio = count / before[scenario]
            worse = worse or ratio > ALLOWED_SHARE
            beside = f"  {ratio:.3f} of {before[scenario]:,.0f}"
        print(f"{scenario:14} {count:10,.0f} instructions per {unit}{beside}")
    return worse


def _counts_of(commit: str) -> dict[str, float]:
    """Return the counts of another commit, from a work tree that is removed again."""
    with tempfile.TemporaryDirectory(prefix="edgeperf-bench-") as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(_ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            return _counts(tree)
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def _counts(tree: Path) -> dict[str, float]:
    return {scenario: _per_query(tree, scenario) for scenario in SCENARIOS}


def _per_query(tree: Path, scenario: str) -> float:
    few, many = _instructions(tree, scenario, FEW), _instructions(tree, scenario, MANY)
    return (many - few) / (MANY - FEW)


def _instructions(tree: Path, scenario: str, queries: int) -> int:
    with tempfile.TemporaryDirectory(prefix="edgeperf-bench-") as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/callgrind"]
        command += [sys.executable, "-m", "benchmarks.null_path", scenario, str(queries), folder]
        environment = {
            **os.environ,
            "PYTHONPATH": f"{tree}/deploy/package:{tree}/tests",
            "PYTHONHASHSEED": "0",
            "OPENBLAS_NUM_THREADS": "1",
        }
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    found = _TOTAL.search(done.stderr)
    if done.returncode or found is None:
        raise RuntimeError(f"{scenario}: {done.stderr[-2000:]}")
    return int(found.group(1))


if __name__ == "__main__":
    sys.exit(main())

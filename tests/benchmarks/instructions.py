"""Instructions per query of the harness itself, counted by callgrind: a gate without noise.

    python -m benchmarks.instructions [--baseline FILE] [--json FILE]

The null backend runs through the timed path of a leader alone, once with few queries and
once with many; the difference holds no start-up. The count depends on the build of Python
and of LoadGen and on nothing that happens on the machine, so that two commits compare on
any of them. With ``--baseline`` more than 3 % above it ends with status 1.
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
_TOTAL = re.compile(r"Collected\s*:\s*(\d+)")


def main() -> int:
    """Count, print, compare."""
    parser = argparse.ArgumentParser(prog="benchmarks.instructions", description=__doc__)
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="counts of another commit")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the counts here")
    args = parser.parse_args()
    if shutil.which("valgrind") is None:
        sys.stderr.write("benchmarks.instructions: needs valgrind (apt install valgrind)\n")
        return 3
    counts = {scenario: _per_query(scenario) for scenario in SCENARIOS}
    if args.json is not None:
        args.json.write_text(json.dumps(counts, indent=2) + "\n")
    before = json.loads(args.baseline.read_text()) if args.baseline else {}
    worse = False
    for scenario, count in counts.items():
        ratio = count / before[scenario] if scenario in before else None
        worse = worse or (ratio is not None and ratio > ALLOWED_SHARE)
        unit = "sample" if scenario == "Offline" else "query"
        beside = "" if ratio is None else f"  {ratio:.3f} of the baseline"
        print(f"{scenario:14} {count:10,.0f} instructions per {unit}{beside}")
    return 1 if worse else 0


def _per_query(scenario: str) -> float:
    few, many = _instructions(scenario, FEW), _instructions(scenario, MANY)
    return (many - few) / (MANY - FEW)


def _instructions(scenario: str, queries: int) -> int:
    with tempfile.TemporaryDirectory(prefix="edgeperf-bench-") as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/callgrind"]
        command += [sys.executable, "-m", "benchmarks.null_path", scenario, str(queries), folder]
        environment = {**os.environ, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    found = _TOTAL.search(done.stderr)
    if done.returncode or found is None:
        raise RuntimeError(f"{scenario}: {done.stderr[-2000:]}")
    return int(found.group(1))


if __name__ == "__main__":
    sys.exit(main())

"""What is in the repository."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def tracked(*patterns: str) -> list[Path]:
    """Files under version control, and new ones that are not ignored."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = [ROOT / name for name in sorted(set(done.stdout.split("\0"))) if name]
    return [path for path in found if path.is_file()]

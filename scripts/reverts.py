#!/usr/bin/env python3
"""Shows that each regression test of a security fix fails without the fix.

usage: scripts/reverts.py [FINDING ...]

Each row of reverts.toml names a finding, a piece of code ("fix") that stands once in a file, what it is replaced by ("without"), and a test
that must fail then. The replacements are made in a work tree of their own, of the last commit. The table is printed and written to
bin/reverts.tsv. Exit code 1 if a test passes without its fix, does not compile, or if a fix is not found.
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import tomllib

root = pathlib.Path(__file__).resolve().parent.parent
rows = tomllib.loads((root / "scripts/reverts.toml").read_text())["revert"]
env = os.environ | {"TOUCHLINE_BIN": str(root / "bin"), "GOFLAGS": "-trimpath"}


def git(*args):
    subprocess.run(["git", "-C", root, *args], check=True, capture_output=True)


def verdict(tree, row):
    path = tree / row["file"]
    text = path.read_text()
    if text.count(row["fix"]) != 1:
        return f"the fix stands {text.count(row['fix'])} times in {row['file']}"
    path.write_text(text.replace(row["fix"], row["without"]))
    try:
        tags = "nolibopusfile,builtinassets" + (",integration" if row.get("integration") else "")
        run = subprocess.run(
            ["go", "test", "-vet=off", "-tags", tags, "-count", "1", "-timeout", "5m", "-run", f"^{row['test']}$", row["package"]],
            cwd=tree, env=env, capture_output=True, text=True,
        )
    finally:
        path.write_text(text)
    if run.returncode and any(s in run.stdout for s in ("--- FAIL", "panic:", "test timed out")):
        return "fails without it"
    return "PASSES without it" if not run.returncode else "does not run: " + (run.stdout + run.stderr).strip()[-300:]


def main(names):
    bad = False
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder) / "tree"
        git("worktree", "add", "--detach", str(tree), "HEAD")
        try:
            assets = "agent/console/web/dist"
            subprocess.run(["cp", "-r", root / assets, tree / "agent/console/web/"], check=True)
            (tree / "bin").symlink_to(root / "bin")
            with open(root / "bin/reverts.tsv", "w") as out:
                for row in rows:
                    if names and row["finding"] not in names:
                        continue
                    result = verdict(tree, row)
                    bad |= result != "fails without it"
                    line = "\t".join((row["finding"], row["file"], row["test"], result))
                    print(line, flush=True)
                    print(line, file=out, flush=True)
        finally:
            git("worktree", "remove", "--force", str(tree))
    return bad


signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the work tree goes
sys.exit(main(sys.argv[1:]))

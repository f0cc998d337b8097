"""What the command worlds/examples writes: tables, truth and batches for the training, prompts about films, texts for the tokenizer."""

import io
import json
import os
import queue
import subprocess
import threading
from pathlib import Path
from typing import IO, Any

import numpy as np

ROOT = Path(__file__).parents[2]
AHEAD = 48  # batches that wait


def start(mode: str, **options: object) -> subprocess.Popen[bytes]:
    """The command in a mode: the program that EXAMPLES names, or built by Go."""
    program = [str(Path(path).resolve())] if (path := os.environ.get("EXAMPLES")) else ["go", "run", "./worlds/examples"]
    flags = [f"-{name}={value.resolve() if isinstance(value, Path) else value}" for name, value in options.items()]
    return subprocess.Popen([*program, mode, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)


def ask(process: subprocess.Popen[bytes], request: str) -> IO[bytes]:
    """Sends a line and returns where the answer comes."""
    assert process.stdin and process.stdout
    process.stdin.write(request.encode() + b"\n")
    process.stdin.flush()
    return process.stdout


def receive(stream: IO[bytes] | None) -> tuple[dict[str, Any], list[np.ndarray]]:
    """A header and its arrays."""
    assert isinstance(stream, io.BufferedReader)
    header = json.loads(stream.readline() or "{}")
    arrays = [np.empty(a["shape"], a["type"]) for a in header.get("arrays", ())]
    if not header or any(stream.readinto(x) < x.nbytes for x in arrays):
        raise EOFError("worlds/examples has ended")
    return header, arrays


def tables(data: Path) -> tuple[dict[str, Any], list[np.ndarray]]:
    """What can be learnt from films, and what all their pictures show."""
    return receive(start("tables", data=data).stdout)


def corpus() -> list[str]:
    """Texts in about the shares in which they are fed: prompts, orders, rules, comments."""
    process = start("corpus")
    out, _ = process.communicate()
    if process.returncode:
        raise EOFError("worlds/examples has failed")
    return [json.loads(line) for line in out.splitlines()]


class Feed:
    """Batches, made by processes of the command ahead of their use: windows of one size; and, when reading is set, texts about each of them."""

    def __init__(self, data: Path, tokenizer: Path, queries: int, pictures: int, workers: int) -> None:
        self.loaded, self.reading = 0, False  # films whose pictures are loaded
        self._ready: queue.Queue[tuple[dict[str, Any], list[np.ndarray]] | EOFError] = queue.Queue(AHEAD)
        for seed in range(workers):
            process = start("batches", data=data, tokenizer=tokenizer, queries=queries, pictures=pictures, seed=seed)
            threading.Thread(target=self._work, args=(process,), daemon=True).start()

    def _work(self, process: subprocess.Popen[bytes]) -> None:
        try:
            while True:
                self._ready.put(receive(ask(process, f"{self.loaded} {int(self.reading)}")))
        except (EOFError, BrokenPipeError):
            self._ready.put(EOFError("worlds/examples has ended"))

    def next(self) -> tuple[dict[str, Any], list[np.ndarray]]:
        """A batch: its header and arrays."""
        if isinstance(batch := self._ready.get(), EOFError):
            raise batch
        return batch

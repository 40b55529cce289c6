"""Store, set, verify, restore: whatever happens in between.

What a file held is on record before it is changed. The record lies in a folder that the
next boot empties, as it resets the knobs; it names the boot as well, for a folder that
does not. A value is restored even where somebody else changed it meanwhile: it was theirs
before it was ours.
"""

import os
from pathlib import Path

import msgspec

from edgeperf.agent.board.kernel_files import read_text
from edgeperf.agent.tuner.knobs import Knob, choose
from edgeperf.agent.tuner.wire import Report, Setting, Wish, is_same


class _Saved(msgspec.Struct, frozen=True):
    path: str
    value: str


class _Record(msgspec.Struct, frozen=True):
    boot: str
    saved: tuple[_Saved, ...]


class Holder:
    """The knobs of one board.

    Args:
        root: Root of the file tree.
        record: File for what has to be restored.
    """

    def __init__(self, root: Path, record: Path) -> None:
        self._root = root
        self._record = record
        self._knobs: list[Knob] = []
        self._missing: list[str] = []
        self._before: dict[Path, str] = {}
        self._problems: dict[Path, str] = {}

    def recover(self) -> tuple[str, ...]:
        """Restore what an earlier life of the service left; returns it in words."""
        try:
            record = msgspec.json.decode(self._record.read_bytes(), type=_Record)
        except FileNotFoundError:
            return ()
        except (OSError, msgspec.DecodeError) as error:
            # It is written in one piece, so nothing was changed after it.
            self._record.unlink(missing_ok=True)
            return (f"{self._record}: {error}; nothing to restore",)
        done = self._restore(record.saved) if record.boot == self._boot() else []
        return tuple(f"{saved.path}: restored {saved.value}" for saved in done)

    def hold(self, wish: Wish) -> Report:
        """Store what is there, set what is wished, and tell what came of it."""
        self.recover()
        self._knobs, self._missing = choose(self._root, wish)
        found = {knob.path: read_text(knob.path) for knob in self._knobs}
        self._before = {path: value for path, value in found.items() if value}
        self._problems = {path: "cannot be read" for path, value in found.items() if not value}
        saved = tuple(_Saved(str(path), value) for path, value in self._before.items())
        self._keep(_Record(boot=self._boot(), saved=saved))
        for knob in self._knobs:
            if knob.path in self._before:
                self._set(knob.path, knob.value)
        return self.look()

    def look(self) -> Report:
        """Tell how the knobs stand now."""
        return Report(
            settings=tuple(self._setting(knob) for knob in self._knobs),
            missing=tuple(self._missing),
        )

    def release(self) -> Report:
        """Tell how the knobs stood until now, then put back what was there before."""
        last = self.look()
        saved = [_Saved(str(path), value) for path, value in self._before.items()]
        restored = len(self._restore(saved)) == len(saved)
        self._knobs = []
        return msgspec.structs.replace(last, restored=restored)

    def _setting(self, knob: Knob) -> Setting:
        now = read_text(knob.path) or ""
        return Setting(
            knob=knob.knob,
            where=knob.where,
            path=str(knob.path),
            before=self._before.get(knob.path, ""),
            wanted=knob.value,
            now=now,
            is_held=is_same(now, knob.value),
            problem=self._problems.get(knob.path, ""),
        )

    def _restore(self, saved: list[_Saved] | tuple[_Saved, ...]) -> list[_Saved]:
        """Write back, last first; what does not take its value stays on record."""
        done = []
        for one in reversed(saved):
            if not is_same(read_text(one.path) or "", one.value):
                self._set(Path(one.path), one.value)
            if is_same(read_text(one.path) or "", one.value):
                done.append(one)
        left = tuple(one for one in saved if one not in done)
        if left:
            self._keep(_Record(boot=self._boot(), saved=left))
        else:
            self._record.unlink(missing_ok=True)
        return done

    def _set(self, path: Path, value: str) -> None:
        # Neither made nor followed: the file is the kernel's, or it is not there.
        flags = os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            handle = os.open(path, flags)
        except OSError as error:
            self._problems[path] = error.strerror or str(error)
            return
        try:
            os.write(handle, value.encode())
        except OSError as error:
            self._problems[path] = error.strerror or str(error)
        finally:
            os.close(handle)

    def _keep(self, record: _Record) -> None:
        part = self._record.with_suffix(".part")
        with part.open("wb") as stream:
            stream.write(msgspec.json.encode(record))
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(self._record)

    def _boot(self) -> str:
        return read_text(self._root / "proc/sys/kernel/random/boot_id") or ""

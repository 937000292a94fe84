"""Files that are there whole or not at all, whenever the process or the machine stops.

What is written goes to a temporary file in the same directory, reaches the disk, and only then
takes the name that was asked for. The temporary file is locked by whoever writes it, so that the
next save can tell what a killed process left behind from what another one is writing.
"""

import contextlib
import errno
import os
import stat
import sys

try:
    import fcntl
except ImportError:  # Windows: an open file cannot be removed there, which does as well
    fcntl = None  # type: ignore[assignment]

_unsupported = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EOPNOTSUPP)


def _prefix(path):
    return f".{os.path.basename(path)[:200]}.tmp-"


def real_path(path):
    """Return where a save to ``path`` writes: a symbolic link's target, so that it stays a link.

    Raises
    ------
    TypeError
        Not a path.
    OSError
        The directory does not exist, or something other than a regular file lies there.
    """
    text = os.fspath(path)
    if isinstance(text, bytes):
        text = os.fsdecode(text)
    target = os.path.realpath(text)
    directory = os.path.dirname(target)
    if not os.path.isdir(directory):
        raise FileNotFoundError(errno.ENOENT, "the directory does not exist", text)
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, "is a directory", text)
    if os.path.exists(target) and not stat.S_ISREG(os.stat(target).st_mode):
        raise OSError(errno.EINVAL, "is not a regular file", text)
    return target


def _lock(fd):
    """Try to lock; True unless another process holds the lock."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # A file system without locks: nobody can hold one.
        return error.errno in _unsupported or error.errno == errno.ENOLCK
    return True


def remove_leftovers(path):
    """Remove temporary files of saves to ``path`` whose process is gone."""
    directory, prefix = os.path.dirname(path), _prefix(path)
    for name in os.listdir(directory):
        if not name.startswith(prefix):
            continue
        left = os.path.join(directory, name)
        try:
            fd = os.open(left, os.O_RDWR)
        except OSError:
            continue  # gone, or not ours to remove
        free = _lock(fd)
        os.close(fd)
        if free:
            with contextlib.suppress(OSError):
                os.unlink(left)


def _sync_directory(directory):
    if sys.platform == "win32":
        return
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _unsupported:
            raise
    finally:
        os.close(fd)


def _older(path):
    """Numbers of the files that were at a path before."""
    start = os.path.basename(path) + "."
    found = [name[len(start):] for name in os.listdir(os.path.dirname(path) or ".")
             if name.startswith(start)]
    return [int(n) for n in found if n.isdecimal() and n.isascii() and not n.startswith("0")]


def _rotate(path, keep):
    """Shift ``path.1``, ``path.2`` and so on by one; ``path`` stays where it is."""
    first = f"{path}.1"
    if keep < 2 or not os.path.exists(path):
        return
    if os.path.exists(first) and os.path.samefile(path, first):
        return  # a save that was killed had come this far
    for i in sorted(_older(path), reverse=True):
        if i <= keep - 2:
            os.replace(f"{path}.{i}", f"{path}.{i + 1}")
    name = os.path.join(os.path.dirname(path), _prefix(path) + os.urandom(8).hex())
    try:
        # A second name for the same file: at no moment is there no file at ``path``.
        os.link(path, name)
    except OSError:
        # No hard links here. Until the new file takes its place, the good one is path.1.
        os.replace(path, first)
    else:
        os.replace(name, first)


def replace(path, write, keep=1):
    """Write a file by ``write(file)`` and give it its name once it is on the disk.

    Parameters
    ----------
    path : str or path-like
    write : callable
        Called with an unbuffered binary file, open for reading and writing.
    keep : int
        How many files to keep: ``path`` and the ones before it, ``path.1`` (the last), up to
        ``path.<keep - 1>``.

    Raises
    ------
    OSError
        With ``path`` as its file name. What was at ``path`` is still there, unchanged.
    """
    target = real_path(path)
    directory = os.path.dirname(target)
    temporary = None
    try:
        remove_leftovers(target)
        temporary = os.path.join(directory, _prefix(target) + os.urandom(8).hex())
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        fd = os.open(temporary, flags, 0o666)
        with open(fd, "r+b", buffering=0) as file:
            _lock(fd)
            if os.path.exists(target) and hasattr(os, "fchmod"):
                os.fchmod(fd, stat.S_IMODE(os.stat(target).st_mode))
            write(file)
            os.fsync(fd)
        _rotate(target, keep)
        os.replace(temporary, target)
        temporary = None
        _sync_directory(directory)
    except OSError as error:
        raise type(error)(error.errno, error.strerror or str(error), os.fspath(path)) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)

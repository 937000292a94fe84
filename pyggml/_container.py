"""GGUF files: a writer, and a reader that believes nothing a file says about itself.

The reader holds a header of bounded size and reads tensors straight to where they shall lie.
Every length is compared with what is left of the file before anything of that length is made.
Metadata is decoded when it is asked for.

Files of pyggml carry two XXH64 checksums as 16 hexadecimal digits: ``pyggml.checksum.data`` of
everything from the start of the data to the end of the file, and ``pyggml.checksum.header`` of
everything before, with its own digits taken as zeros.
"""

import errno
import math
import os
import struct
import sys

import numpy as np

from pyggml import _durable, _gguf
from pyggml._gguf import DTYPES, NAMES, TYPES, Checksum

ALIGNMENT = 32
MAX_NAME = 63  # bytes; ggml keeps names in 64 with a zero at the end
_MAX_HEADER = 1 << 26
_MAX_KEYS = 1 << 16
_MAX_TENSORS = 1 << 16
_CHUNK = 1 << 19  # stays in a core's cache between reading and summing
_AHEAD = 1 << 23  # bytes that the disk begins to write while the next ones are being made
_VERSION = 3
_HEADER_SUM = "pyggml.checksum.header"
_DATA_SUM = "pyggml.checksum.data"
_BLANK = "0" * 16

_U8, _I8, _U16, _I16, _U32, _I32, _F32, _BOOL, _STR, _ARR, _U64, _I64, _F64 = range(13)
_FORMATS = {_U8: "<B", _I8: "<b", _U16: "<H", _I16: "<h", _U32: "<I", _I32: "<i", _F32: "<f",
            _BOOL: "<?", _U64: "<Q", _I64: "<q", _F64: "<d"}
_SIZES = {kind: struct.calcsize(text) for kind, text in _FORMATS.items()}
_REAL = ("f32", "f16", "bf16", "q8_0", "q4_K")  # what can be read as float32
_LAYOUTS = {name: _gguf.layout(name) for name in TYPES}


class FileFormatError(ValueError):
    """A file is damaged, cut short, or not of the kind that was asked for.

    Parameters
    ----------
    path : str
    reason : str

    Attributes
    ----------
    path : str
    reason : str

    Examples
    --------
    >>> from pyggml import FileFormatError
    >>> str(FileFormatError("model.gguf", "cut short"))
    'model.gguf: cut short'
    """

    def __init__(self, path, reason):
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason

    def __reduce__(self):
        return FileFormatError, (self.path, self.reason)


def check_byte_order():
    """Raise NotImplementedError on big-endian machines, whose weights lie the other way round."""
    if sys.byteorder != "little":
        raise NotImplementedError("files are read and written on little-endian machines only")


class Entry:
    """One tensor of a file.

    Attributes
    ----------
    name : str
    shape : tuple of int
        Row-major: the reverse of ggml's order.
    type : str
        ``"f32"``, ``"q8_0"`` and so on.
    offset, nbytes : int
        In the data.
    """

    __slots__ = ("name", "nbytes", "offset", "shape", "type")

    def __init__(self, name, shape, kind, offset, nbytes):
        self.name = name
        self.shape = shape
        self.type = kind
        self.offset = offset
        self.nbytes = nbytes


def nbytes_of(shape, kind):
    """Return how many bytes a tensor takes; the last axis has whole blocks."""
    block, size = _LAYOUTS[kind]
    return math.prod(shape) // block * size


def _pad(n):
    return -n % ALIGNMENT


# ---- writing ------------------------------------------------------------------------------

def _string(text):
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _value(value):
    if isinstance(value, bool):
        return struct.pack("<i?", _BOOL, value)
    if isinstance(value, int):
        return struct.pack("<iI", _U32, value)
    if isinstance(value, float):
        return struct.pack("<id", _F64, value)
    return struct.pack("<i", _STR) + _string(value)


def _header(metadata, entries):
    """Return the bytes before the data and where the digits of the header's checksum lie."""
    parts = [b"GGUF", struct.pack("<Iqq", _VERSION, len(entries), len(metadata))]
    length = sum(map(len, parts))
    at = 0
    for key, value in metadata.items():
        item = _string(key) + _value(value)
        length += len(item)
        if key == _HEADER_SUM:
            at = length - len(_BLANK)
        parts.append(item)
    for e in entries:
        dims = e.shape[::-1]
        parts.append(_string(e.name) + struct.pack(f"<I{len(dims)}qiQ", len(dims), *dims,
                                                   TYPES[e.type], e.offset))
    data = bytearray(b"".join(parts))
    data += bytes(_pad(len(data)))
    return data, at


def _write_all(file, data):
    data = memoryview(data)
    while len(data):
        n = file.write(data)
        if not n:
            raise OSError(errno.EIO, "nothing could be written")
        data = data[n:]


class _DataWriter:
    """Writes what follows in a file, summing it, and lets the disk begin early."""

    def __init__(self, file):
        self.file = file
        self.checksum = Checksum()
        self.begun = self.at = file.tell()

    def write(self, data):
        for start in range(0, len(data), _CHUNK):
            chunk = data[start:start + _CHUNK]
            self.checksum.update(chunk)
            _write_all(self.file, chunk)
            self.at += len(chunk)
            if self.at - self.begun >= _AHEAD:
                _gguf.write_ahead(self.file.fileno(), self.begun, self.at - self.begun)
                self.begun = self.at


def write(path, metadata, tensors, keep=1):
    """Write a GGUF file, whole or not at all.

    Parameters
    ----------
    path : str or path-like
    metadata : dict of str to str, int, float or bool
        Without the checksums, which are added.
    tensors : list of (str, tuple of int, str, callable)
        Name of at most 63 bytes, row-major shape, type, and what returns the C-contiguous array
        of these bytes when it is their turn.
    keep : int
        See :func:`pyggml._durable.replace`.
    """
    check_byte_order()
    entries, offset = [], 0
    for name, shape, kind, _ in tensors:
        nbytes = nbytes_of(shape, kind)
        entries.append(Entry(name, tuple(shape), kind, offset, nbytes))
        offset += nbytes + _pad(nbytes)
    metadata = {"general.architecture": "pyggml"} | metadata
    metadata |= {_HEADER_SUM: _BLANK, _DATA_SUM: _BLANK}
    size = len(_header(metadata, entries)[0])

    def fill(file):
        file.seek(size)
        writer = _DataWriter(file)
        for e, (_, _, _, make) in zip(entries, tensors, strict=True):
            data = memoryview(make()).cast("B") if e.nbytes else memoryview(b"")
            if len(data) != e.nbytes:
                raise RuntimeError(f"{e.name!r} has {len(data)} bytes instead of {e.nbytes}")
            writer.write(data)
            writer.write(bytes(_pad(e.nbytes)))
        metadata[_DATA_SUM] = writer.checksum.hexdigest()
        header, at = _header(metadata, entries)
        checksum = Checksum()
        checksum.update(header)
        header[at:at + len(_BLANK)] = checksum.hexdigest().encode()
        file.seek(0)
        _write_all(file, header)

    _durable.replace(path, fill, keep)


# ---- reading ------------------------------------------------------------------------------

class _Cursor:
    """Reads the header from front to back, fetching more of the file as it goes."""

    def __init__(self, file, path, size):
        self.file, self.path, self.size = file, path, size
        self.data = bytearray()
        self.at = 0

    def fail(self, reason):
        raise FileFormatError(self.path, reason)

    def need(self, n, what):
        """Make sure that n more bytes are there; n comes from the file."""
        end = self.at + n
        if end > self.size:
            self.fail(f"cut short or damaged: {what} would end at byte {end} of {self.size}")
        if end > _MAX_HEADER:
            self.fail(f"the header is longer than {_MAX_HEADER} bytes")
        while len(self.data) < end:
            more = self.file.read(min(max(end - len(self.data), 1 << 16),
                                      self.size - len(self.data)))
            if not more:
                self.fail(f"cut short: it ended at byte {len(self.data)} while it was read")
            self.data += more

    def number(self, kind, what):
        n = _SIZES[kind]
        self.need(n, what)
        value = struct.unpack_from(_FORMATS[kind], self.data, self.at)[0]
        self.at += n
        return value

    def skip(self, n, what):
        self.need(n, what)
        self.at += n

    def text(self, what):
        n = self.number(_U64, what)
        self.need(n, what)
        try:
            value = self.data[self.at:self.at + n].decode("utf-8")
        except UnicodeDecodeError:
            self.fail(f"{what} is not UTF-8")
        self.at += n
        return value

    def pass_value(self, key):
        """Go past a value; return its type, where it starts, and where its text starts."""
        what = f"the value of {key!r}"
        kind = self.number(_I32, what)
        start = self.at
        count = 1
        if kind == _ARR:
            inner = self.number(_I32, what)
            count = self.number(_U64, what)
        else:
            inner = kind
        if inner in _SIZES:
            self.skip(count * _SIZES[inner], what)
        elif inner == _STR:
            if count > (self.size - self.at) // 8:
                self.fail(f"{what} claims {count} strings, more than the file can hold")
            for _ in range(count):
                self.skip(self.number(_U64, what), what)
        else:
            self.fail(f"{what} has the unknown type {inner}")
        return kind, start


class Container:
    """An open GGUF file whose header has been checked.

    Parameters
    ----------
    path : str or path-like

    Attributes
    ----------
    path : str
    entries : dict of str to Entry
        In the order of the file.
    verified : tuple of int, or None
        Size and time of the last change of the file when all data had fitted their checksum.

    Raises
    ------
    OSError
        The file cannot be opened or read.
    FileFormatError
        It is no GGUF file, or damaged, or holds types that are not known.
    """

    def __init__(self, path):
        check_byte_order()
        self.path = os.fspath(path)
        if isinstance(self.path, bytes):
            self.path = os.fsdecode(self.path)
        self.verified = None
        self.file = open(self.path, "rb", buffering=0)  # noqa: SIM115
        try:
            self._parse()
        except BaseException:
            self.file.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        """Close the file."""
        self.file.close()

    def fail(self, reason):
        """Raise FileFormatError."""
        raise FileFormatError(self.path, reason)

    def _parse(self):
        size = os.fstat(self.file.fileno()).st_size
        cursor = _Cursor(self.file, self.path, size)
        if size < 4:
            self.fail(f"not a GGUF file: it has {size} bytes")
        cursor.need(4, "the magic")
        if cursor.data[:4] != b"GGUF":
            self.fail(f"not a GGUF file: it starts with {bytes(cursor.data[:4])!r}")
        cursor.at = 4
        version = cursor.number(_U32, "the version")
        if version not in (2, 3):
            self.fail(f"GGUF version {version} is not supported; 2 and 3 are")
        n_tensors = cursor.number(_I64, "the number of tensors")
        n_keys = cursor.number(_I64, "the number of keys")
        for n, what, most in ((n_tensors, "tensors", _MAX_TENSORS), (n_keys, "keys", _MAX_KEYS)):
            if not 0 <= n <= min(most, size // 13):
                self.fail(f"damaged: it claims {n} {what}")
        self._cursor = cursor
        self._keys = {}
        for _ in range(n_keys):
            key = cursor.text("a key")
            if key in self._keys:
                self.fail(f"damaged: the key {key!r} comes twice")
            self._keys[key] = cursor.pass_value(key)
        self._check_alignment()
        self.entries = {}
        for _ in range(n_tensors):
            self._parse_entry(cursor)
        cursor.skip(_pad(cursor.at), "the padding of the header")
        self.start, self.size = cursor.at, size
        self._check_extent()
        if "pyggml.format" in self._keys:
            self._check_header()

    def _check_alignment(self):
        if "general.alignment" in self._keys and self.get("general.alignment") != ALIGNMENT:
            self.fail(f"general.alignment is {self.get('general.alignment')!r}; {ALIGNMENT} is "
                      "supported")

    def _parse_entry(self, cursor):
        name = cursor.text("the name of a tensor")
        what = f"tensor {name!r}"
        if name in self.entries:
            self.fail(f"damaged: {what} comes twice")
        n = cursor.number(_U32, what)
        if n > 4:
            self.fail(f"{what} has {n} axes; at most 4 are possible")
        dims = [cursor.number(_I64, what) for _ in range(n)]
        number = cursor.number(_I32, what)
        offset = cursor.number(_U64, what)
        if any(d < 0 or d > cursor.size * 64 for d in dims):
            self.fail(f"damaged: {what} has the impossible shape {tuple(dims[::-1])}")
        if number not in NAMES:
            self.fail(f"{what} has ggml's type number {number}, which pyggml does not read")
        kind = NAMES[number]
        shape = tuple(dims[::-1])
        if (shape or (1,))[-1] % _LAYOUTS[kind][0]:
            self.fail(f"damaged: {what} of type {kind} has shape {shape}")
        self.entries[name] = Entry(name, shape, kind, offset, nbytes_of(shape, kind))

    def _check_extent(self):
        """Tensors lie one behind the other and end where the file ends."""
        at = 0
        for e in self.entries.values():
            if e.offset != at:
                self.fail(f"damaged: tensor {e.name!r} lies at {e.offset} instead of {at}")
            at += e.nbytes + _pad(e.nbytes)
        if self.start + at != self.size:
            missing = self.start + at - self.size
            self.fail(f"cut short: {missing} bytes are missing" if missing > 0
                      else f"damaged: {-missing} bytes too many")

    def _check_header(self):
        kind, start = self._keys.get(_HEADER_SUM, (None, 0))
        found = self.get(_HEADER_SUM)
        if kind != _STR or not isinstance(found, str) or len(found.encode()) != len(_BLANK):
            self.fail("damaged: it has no checksum of the header")
        at = start + 8
        header = memoryview(self._cursor.data)[:self.start]
        checksum = Checksum()
        for part in (header[:at], _BLANK.encode(), header[at + len(_BLANK):]):
            checksum.update(part)
        if checksum.hexdigest() != found:
            self.fail("damaged: the checksum of the header does not fit")

    # -- metadata ------------------------------------------------------------------------

    def get(self, key, default=None):
        """Return the value of a key: a number, a string, or a list of them."""
        if key not in self._keys:
            return default
        kind, start = self._keys[key]
        cursor = self._cursor
        before, cursor.at = cursor.at, start
        try:
            what = f"the value of {key!r}"
            if kind == _ARR:
                inner, count = cursor.number(_I32, what), cursor.number(_U64, what)
                return [cursor.text(what) if inner == _STR else cursor.number(inner, what)
                        for _ in range(count)]
            return cursor.text(what) if kind == _STR else cursor.number(kind, what)
        finally:
            cursor.at = before

    def metadata_keys(self):
        """Return the keys of the metadata."""
        return list(self._keys)

    # -- data ----------------------------------------------------------------------------

    def _fetch(self, view):
        """Fill a buffer from where the file stands."""
        while len(view):
            n = self.file.readinto(view)
            if not n:
                self.fail("cut short: it ended while it was read")
            view = view[n:]

    def _read(self, entry, target, checksum):
        """Read one tensor into a flat array, from where the file stands."""
        plain = target.dtype == DTYPES.get(entry.type)
        block, size = _LAYOUTS[entry.type]
        step = _CHUNK // size * size
        if plain:
            bytes_ = memoryview(target).cast("B") if target.size else memoryview(b"")
        else:
            bytes_ = memoryview(bytearray(min(step, entry.nbytes)))
        for start in range(0, entry.nbytes, step):
            n = min(step, entry.nbytes - start)
            chunk = bytes_[start:start + n] if plain else bytes_[:n]
            self._fetch(chunk)
            if checksum is not None:
                checksum.update(chunk)
            if not plain:
                first = start // size * block
                _gguf.dequantize(chunk, entry.type, target[first:first + n // size * block])

    def _flat(self, entry, target):
        if target.shape != entry.shape or not target.flags.c_contiguous:
            raise ValueError(f"{self.path}: tensor {entry.name!r} of shape {entry.shape} does not "
                             f"go into shape {target.shape}")
        if target.dtype != DTYPES.get(entry.type) and not (
                target.dtype == np.float32 and entry.type in _REAL):
            raise ValueError(f"{self.path}: tensor {entry.name!r} of type {entry.type} does not "
                             f"go into {target.dtype}")
        return target.reshape(-1)

    def _stamp(self):
        found = os.fstat(self.file.fileno())
        return found.st_size, found.st_mtime_ns

    def verify(self):
        """Read all data and compare it with its checksum, holding none of it."""
        self.read_all({})

    def read_all(self, targets):
        """Read tensors, and check the data on the way.

        Where the checksum does not fit, targets hold what was read when the error is raised: use
        :meth:`verify` first for arrays that somebody needs.

        Parameters
        ----------
        targets : dict of str to numpy.ndarray
            C-contiguous, of the entry's shape, and float32 or of its type.
        """
        flat = {name: self._flat(self.entries[name], target) for name, target in targets.items()}
        stamp = self._stamp()
        wanted = self.get(_DATA_SUM)
        checksum = None if wanted is None else Checksum()
        scratch = memoryview(bytearray(_CHUNK))
        self.file.seek(self.start)
        for e in self.entries.values():
            if e.name in flat:
                self._read(e, flat[e.name], checksum)
                left = _pad(e.nbytes)
            else:
                left = e.nbytes + _pad(e.nbytes)
            while left:
                part = scratch[:min(left, _CHUNK)]
                self._fetch(part)
                if checksum is not None:
                    checksum.update(part)
                left -= len(part)
        if checksum is not None and checksum.hexdigest() != wanted:
            self.fail("damaged: the checksum of the data does not fit")
        self.verified = stamp

    def reading(self, targets):
        """Return what reads tensors, after :meth:`verify`, when it is run.

        Parameters
        ----------
        targets : dict of str to numpy.ndarray
            As for :meth:`read_all`.

        Returns
        -------
        Reading
        """
        read = _gguf.Reading(self.file, self.verified, self.fail)
        for name, target in targets.items():
            entry = self.entries[name]
            read.add(self.start + entry.offset, entry.nbytes, entry.type,
                     self._flat(entry, target))
        return read

    def read_into(self, name, target):
        """Read one tensor without checking the data's checksum."""
        entry = self.entries[name]
        self._read_at(entry, self._flat(entry, target))

    def _read_at(self, entry, target):
        self.file.seek(self.start + entry.offset)
        self._read(entry, target, None)

    def read(self, name):
        """Return one tensor as a new array: of its own type, or float32 where it has none."""
        entry = self.entries[name]
        target = np.empty(entry.shape, DTYPES.get(entry.type, np.dtype(np.float32)))
        self.read_into(name, target)
        return target

"""A reader of indexes that was written from ``docs/index-format.md`` alone.

It shares no code with secure_bloom. Where the page says that a reader refuses something, it raises
:class:`Refused`.
"""

import base64
import hashlib
import json
import struct
from pathlib import Path

import pyarrow as pa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from xxhash import xxh64_intdigest

PAGE, DIRECTORY, FILES, FOOTER, MANIFEST, FILE_PAGE = range(6)


class Refused(Exception):
    """The files are not a valid index."""


def derive(key, index_id, info):
    return HKDF(hashes.SHA256(), 32, index_id, info).derive(key)


def opened(module, key, index_id, segment_id, kind, ordinal, magic):
    if len(module) < 32 or struct.unpack("<I", module[:4])[0] != len(module) - 4:
        raise Refused("length of a module")
    aad = magic + index_id + segment_id + struct.pack("<BQ", kind, ordinal)
    try:
        return AESGCM(key).decrypt(module[4:16], module[16:], aad)
    except InvalidTag:
        raise Refused("a module does not authenticate") from None


def fields_of(data, *names):
    fields = json.loads(data)
    if sorted(fields) != sorted(names):
        raise Refused(f"fields {sorted(fields)}")
    return fields


def newest_manifest(folder):
    for path in sorted(Path(folder).glob("*.manifest"), reverse=True):
        try:
            return int(path.stem), json.loads(path.read_bytes())
        except ValueError:
            continue
    raise Refused("there is no complete manifest")


class Index:
    """An index; ``unwrap`` returns the index key for key material."""

    def __init__(self, folder, column, unwrap=None):
        version, outer = newest_manifest(folder)
        if outer.get("format") not in ("SBX2", "SBX3") or outer.get("version") != version:
            raise Refused("format or version")
        fields_of(json.dumps(outer), "format", "index_id", "version", "body",
                  "index_key" if "index_key" in outer else "key_material")
        self.id = bytes.fromhex(outer["index_id"])
        self.key = base64.b64decode(outer["index_key"]) if "index_key" in outer \
            else unwrap(outer["key_material"])
        body = opened(base64.b64decode(outer["body"]), derive(self.key, self.id, b"manifest"),
                      self.id, bytes(16), MANIFEST, version, outer["format"].encode())
        body = fields_of(body, "column", "segments", "restamped", "is_exclusive", "generation",
                         "removed", *(["listed"] if outer["format"] == "SBX3" else []))
        if body["column"] != column:
            raise Refused("another column")
        if body.get("listed") is not None and body["generation"] is None:
            raise Refused("totals without a generation")
        names = [one.get("file", one["id"]) for one in body["segments"]]
        if len(set(names)) < len(names):
            raise Refused("a file of two segments")
        self.restamped = body["restamped"]
        self.segments = [Segment(self, Path(folder), one) for one in body["segments"]]

    def lookup(self, listing, encoded):
        """Return where a value in plain encoding may be, and the uncovered files.

        By path: row groups with the 32nds of their rows, as bits.

        The listing has size, time and tag of the files of the table, by path.
        """
        covered = {}
        for segment in self.segments:
            for number, row in enumerate(segment.files):
                stamp = row["size"], row["mtime_ns"], row["tag"]
                again = self.restamped.get(row["path"])
                if again is not None and bytes.fromhex(again[3]) == row["content"]:
                    stamp = tuple(again[:3])
                if row["size"] >= 0 and listing.get(row["path"]) == stamp:
                    covered[row["path"]] = segment, number
        found = {}
        for segment in self.segments:
            for path, number, group, range_ in segment.find(self.fingerprint(encoded)):
                if covered.get(path) == (segment, number):
                    found.setdefault(path, {})[group] = parts_of(range_)
        return found, set(listing) - set(covered)

    def fingerprint(self, encoded):
        block = struct.pack("<QQ", xxh64_intdigest(encoded), 0)
        key = derive(self.key, self.id, b"fingerprint")
        result = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(block)
        return struct.unpack("<Q", result[:8])[0] >> 26


def parts_of(range_):
    """The bits of the 32nds of a row group that a range has."""
    first = last = max(range_, 1)
    while last < 32:
        first, last = 2 * first, 2 * last + 1
    return sum(1 << part - 32 for part in range(first, last + 1))


class Segment:
    def __init__(self, index, folder, info):
        parts, file = info.pop("parts", []), info.pop("file", info["id"])
        info = fields_of(json.dumps(info), "id", "tail", "size", "pairs", "files", "row_groups")
        self.index, self.id, self.data = index, bytes.fromhex(info["id"]), b""
        for part in parts:
            part = fields_of(json.dumps(part), "id", "size")
            data = (folder / f"{part['id']}.part").read_bytes()
            if len(data) != part["size"]:
                raise Refused("size of a part")
            self.data += data
        self.data += (folder / f"{file}.seg").read_bytes()
        self.segment_key = derive(index.key, index.id, b"segment" + self.id)
        self.magic = self.data[:4]
        if len(self.data) != info["size"] or self.magic not in (b"SBX2", b"SBX3") \
                or self.data[-4:] != self.magic:
            raise Refused("size or magic of a segment")
        end = len(self.data) - 8
        size = struct.unpack("<I", self.data[end:end + 4])[0]
        footer = fields_of(self.open(end - size, size, FOOTER), "pairs", "directory", "files",
                           "geometry", "column_type")
        geometry = footer["geometry"]
        self.range_bits = geometry.pop("range_bits", 0)
        if geometry.pop("fingerprint_bits") != 38 or len(geometry) != 3:
            raise Refused("geometry")
        self.page_bits, self.bucket_bits, self.group_bits = (
            geometry[name] for name in ("page_bits", "bucket_bits", "group_bits"))
        self.remainder_bits = 38 - self.page_bits - self.bucket_bits
        self.place_bits = self.group_bits + self.range_bits
        if self.range_bits > 6 or self.place_bits > 26:
            raise Refused("geometry")
        self.physical_type = footer["column_type"]["physical_type"]
        table = self.open(footer["files"], end - size - footer["files"], FILES)
        starts = [footer["directory"], footer["files"]]
        if self.magic == b"SBX2":
            self.files = file_table(table)
        else:
            sizes, self.files = self.paged_files(table, footer["directory"])
            starts.append(footer["directory"] - sum(sizes))
        self.pages = list(self.directory(footer["directory"]))
        if info["tail"] not in starts \
                or (len(self.files), sum(row["row_groups"] for row in self.files),
                    footer["pairs"]) != (info["files"], info["row_groups"], info["pairs"]):
            raise Refused("totals")

    def open(self, offset, size, kind, ordinal=0):
        return opened(self.data[offset:offset + size], self.segment_key, self.index.id, self.id,
                      kind, ordinal, self.magic)

    def paged_files(self, table, end):
        """The sizes of the pages of files, and all rows."""
        content = Content(table)
        n, page_files, m = content.numbers(3, "i")
        num_pages = -(-n // page_files)
        groups, sizes = content.numbers(num_pages, "i"), content.numbers(num_pages, "i")
        schemas = content.texts(m)
        content.check_end()
        rows, at = [], end - sum(sizes)
        for number, size in enumerate(sizes):
            page = Content(self.open(at, size, FILE_PAGE, number), 4 * 2**20)
            some = page.rows(*page.numbers(1, "i"), has_ranges=True)
            page.check_end()
            if len(some) != min(page_files, n - len(rows)) \
                    or sum(row["row_groups"] for row in some) != groups[number]:
                raise Refused("page of files")
            rows += some
            at += size
        return sizes, checked(rows, schemas)

    def directory(self, offset):
        left, part = 2**self.page_bits, 0
        while left:
            count = min(left, 65_536)
            content = self.open(offset, 32 + 8 + 4 * count, DIRECTORY, part)
            [at] = struct.unpack("<Q", content[:8])
            for size in struct.unpack(f"<{count}I", content[8:]):
                yield at, size
                at += size
            offset, left, part = offset + 40 + 4 * count, left - count, part + 1

    def find(self, fingerprint):
        page = fingerprint >> 38 - self.page_bits
        bucket = fingerprint >> self.remainder_bits & 2**self.bucket_bits - 1
        remainder = fingerprint & 2**self.remainder_bits - 1
        content = self.open(*self.pages[page], PAGE, page)
        [n] = struct.unpack("<I", content[:4])
        start = 4 + (n + 2**self.bucket_bits + 7) // 8
        bits = int.from_bytes(content[4:start], "little")
        width = (self.remainder_bits + self.place_bits + 7) // 8
        if len(content) != start + n * width:
            raise Refused("size of a page")
        here = entry = 0
        while here <= bucket:
            if bits & 1:
                if here == bucket:
                    at = start + entry * width
                    stored = int.from_bytes(content[at:at + width], "little")
                    if stored >> self.place_bits == remainder:
                        place = stored & 2**self.place_bits - 1
                        path, number, group = self.place(place >> self.range_bits)
                        has_ranges = self.range_bits and self.files[number]["ranges"]
                        yield path, number, group, \
                            place & 2**self.range_bits - 1 if has_ranges else 1
                entry += 1
            else:
                here += 1
            bits >>= 1

    def place(self, group):
        for number, row in enumerate(self.files):
            if group < row["row_groups"]:
                return row["path"], number, group
            group -= row["row_groups"]
        raise Refused("row group")


class Content:
    """Compressed content of the file table."""

    def __init__(self, stored, limit=128 * 2**20):
        [size] = struct.unpack("<q", stored[:8])
        if size > limit:
            raise Refused("size of a file table")
        self.data = pa.Codec("zstd").decompress(stored[8:], decompressed_size=size, asbytes=True)
        self.at = 0

    def numbers(self, count, kind):
        width = struct.calcsize(f"<{kind}")
        self.at += count * width
        data = self.data[self.at - count * width:self.at]
        return [one[0] for one in struct.iter_unpack(f"<{kind}", data)]

    def texts(self, count):
        found = []
        for length in self.numbers(count, "i"):
            found.append(self.data[self.at:self.at + length])
            self.at += length
        return found

    def rows(self, n, has_ranges):
        columns = {name: self.numbers(n, kind) for name, kind in (
            ("size", "q"), ("mtime_ns", "q"), ("rows", "q"), ("row_groups", "i"), ("schema", "i"),
            ("content", "16s"), ("footer", "16s"))}
        columns["ranges"] = self.numbers(n, "b") if has_ranges else [1] * n
        columns["path"] = [text.decode() for text in self.texts(n)]
        columns["tag"] = [text.decode() for text in self.texts(n)]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def check_end(self):
        if self.at != len(self.data):
            raise Refused("file table")


def file_table(stored):
    """The rows of a file table of the format SBX2."""
    content = Content(stored)
    n, m = content.numbers(2, "i")
    rows = content.rows(n, has_ranges=False)
    schemas = content.texts(m)
    content.check_end()
    return checked(rows, schemas)


def checked(rows, schemas):
    """The rows with their schemas."""
    paths = [row["path"] for row in rows if row["size"] >= 0]
    if not rows or len(set(paths)) < len(paths) \
            or any({"", ".", ".."} & set(path.split("/")) for path in paths):
        raise Refused("file table")
    return [row | {"schema": schemas[row["schema"]]} for row in rows]


def footer_digest(path):
    """The digest of a file's stored footer, as in the file table."""
    data = Path(path).read_bytes()
    size = struct.unpack("<I", data[-8:-4])[0]
    return hashlib.sha256(data[-8 - size:-8]).digest()[:16]

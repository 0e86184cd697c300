#!/usr/bin/env python3
"""Makes a text of books in the public domain, to train and to measure small models on (train_small.py, bench/quality.py).

    tools/book_text.py OUT        OUT/train.txt and OUT/held_out.txt

The books come from Debian's packages, which apt-get downloads and nothing installs: the World English Bible, Spurgeon's
Treasury of David (1885), Henry's Concise Commentary, Scofield's Reference Notes (1917) and the novels of Jane Austen; some 27 MB
together. Of every book the last part (2 %, by paragraphs) is held out. A package of a newer version may give a slightly other
text, so only figures of one run of this script can be compared. Needs Python 3.9, apt-get and dpkg-deb.
"""
import argparse
import html
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import zlib

SWORD_PACKAGES = ["sword-text-web", "sword-comm-tdavid", "sword-comm-mhcc", "sword-comm-scofield"]
NOVELS_PACKAGE = "r-cran-janeaustenr"
HELD_OUT = 0.02
SHORTEST_LINE = 40  # of a novel: what is shorter is a name of an object or a page number
CHARACTER_STRING = 9  # CHARSXP, a string in a serialised R object


def fetch(package, folder):
    """Unpacks a package below folder without installing it."""
    subprocess.run(["apt-get", "download", package], cwd=folder, check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    (file,) = folder.glob(f"{package}_*.deb")
    out = folder / package
    subprocess.run(["dpkg-deb", "-x", file, out], check=True)
    return out


def sword_blocks(index):
    """A compressed SWORD module: an index of (offset, bytes, bytes unpacked), and zlib blocks beside it."""
    data = index.with_suffix(index.suffix[:-1] + "z").read_bytes()
    for offset, size, _ in struct.iter_unpack("<III", index.read_bytes()):
        if size > 0:
            yield zlib.decompress(data[offset:offset + size]).decode("utf-8", "replace")


def plain(markup):
    """The paragraphs of an OSIS text, without notes."""
    text = re.sub(r"<note\b.*?</note>", " ", markup, flags=re.S)
    text = re.sub(r"</?(div|title|p|lb|chapter|item|list)\b[^>]*>", "\n", text)
    text = html.unescape(re.sub(r"<[^>]*>", "", text))
    lines = (re.sub(r"\s+", " ", line).strip() for line in text.split("\n"))
    return [line for line in lines if line]


def bible_books(folder):
    for index in sorted([*folder.rglob("*.bzs"), *folder.rglob("*.czs")], key=lambda p: p.name, reverse=True):
        yield [line for block in sword_blocks(index) for line in plain(block)]


def serialised_strings(data):
    """Strings of a serialised R object: big-endian flags whose low byte is the type, a length, the bytes."""
    at = 0
    while at + 8 <= len(data):
        flags, length = struct.unpack(">Ii", data[at:at + 8])
        if flags & 255 == CHARACTER_STRING and flags >> 20 == 0 and 0 <= length <= 500 and at + 8 + length <= len(data):
            yield data[at + 8:at + 8 + length].decode("utf-8", "replace")
            at += 8 + length
        else:
            at += 1


def novels(folder):
    """A lazy-load database of R: records of a big-endian length and a zlib stream; here each is a novel, line by line."""
    data = next(folder.rglob("Rdata.rdb")).read_bytes()
    at = 0
    while at + 4 < len(data):
        unpack = zlib.decompressobj()
        raw = unpack.decompress(data[at + 4:])
        at = len(data) - len(unpack.unused_data)
        paragraphs, lines = [], []
        for line in serialised_strings(raw):
            if line.strip():
                lines.append(line.strip())
            elif lines:
                paragraphs.append(" ".join(lines))
                lines = []
        yield [p for p in paragraphs if len(p) >= SHORTEST_LINE]


def books():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for package in SWORD_PACKAGES:
            yield from bible_books(fetch(package, folder))
        yield from novels(fetch(NOVELS_PACKAGE, folder))


def split(paragraphs):
    """The last paragraphs, HELD_OUT of the bytes, apart."""
    left = HELD_OUT * sum(map(len, paragraphs))
    at = len(paragraphs)
    while at > 0 and left > 0:
        at -= 1
        left -= len(paragraphs[at])
    return paragraphs[:at], paragraphs[at:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    parts = {"train.txt": [], "held_out.txt": []}
    for paragraphs in books():
        for name, part in zip(parts, split(paragraphs)):
            if part:
                parts[name].append("\n".join(part) + "\n")
    for name, texts in parts.items():
        path = options.out / name
        path.write_text("\n".join(texts), encoding="utf-8")
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB of {len(texts)} books", file=sys.stderr)


if __name__ == "__main__":
    main()

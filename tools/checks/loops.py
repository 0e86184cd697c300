"""The inner loop of every kernel, counted in its disassembly: instructions, loads, and vector registers that go to or
come from the stack. Counts do not depend on what else the machine does, so they show what a timing hides: a compiler
that spills, a load too many, a loop that is no longer unrolled.

    tools/check_repo.py --only loops --record      writes the counts of this build into kernel_loops.tsv

The inner loop of a function is the backward branch with the most dot products that lie in no smaller loop. Stack
traffic includes small arrays that a kernel keeps there; only a change says something.
"""
import pathlib
import re
import subprocess

from checks import binary

TABLE = "tools/checks/kernel_loops.tsv"
HEADER = "# compiler\tobject\tfunction\tdots\tinstructions\tloads\tstack      by tools/check_repo.py --only loops --record\n"
COUNTS = ("dots", "instructions", "loads", "stack")
DOTS = (re.compile(r"^(vpdpbusd|vpdpwssd|tdpb\w+|vpmaddubsw)$"), re.compile(r"^vfn?m(add|sub)\d+p[sdh]$"))
LINE = re.compile(r"^\s+([0-9a-f]+):\t(?:\{[a-z0-9]+\} )?(\S+)(?:\s+(.*))?$")
SYMBOL = re.compile(r"^[0-9a-f]+ <(.+)>:$")
TARGET = re.compile(r"^([0-9a-f]+)(?: <|$)")
NO_LOAD = re.compile(r"^(lea|nop|prefetch|tilestore|call|jmp)")
STACK = re.compile(r"\(%r[sb]p\)")


class Instruction:
    def __init__(self, address, name, operands):
        self.address, self.name, self.operands = address, name, operands

    def branch_target(self):
        found = TARGET.match(self.operands) if self.name.startswith("j") else None
        return int(found.group(1), 16) if found else None

    def reads_memory(self):
        if NO_LOAD.match(self.name) or "(" not in self.operands:
            return False
        stores = self.operands.endswith(")") and re.match(r"^(v?mov|vpmov|vextract|set)", self.name)
        return not stores

    def moves_vector_to_or_from_stack(self):
        return re.match(r"^v?mov", self.name) is not None and re.search(r"%[xyz]mm", self.operands) is not None \
            and STACK.search(self.operands) is not None


def functions(lines):
    """{name: [Instruction]} from `objdump -d --no-show-raw-insn -C`."""
    found, current = {}, None
    for line in lines:
        head = SYMBOL.match(line)
        if head:
            current = found.setdefault(short(head.group(1)), [])
            continue
        match = LINE.match(line)
        if match and current is not None:
            current.append(Instruction(int(match.group(1), 16), match.group(2), match.group(3) or ""))
    return found


def short(symbol):
    """`void a::(anonymous namespace)::tile<12, 7>(A const&)` is `tile<12, 7>`."""
    name = symbol.replace("(anonymous namespace)::", "")
    name = re.sub(r"\b\w+::", "", name)
    name = re.sub(r"\(\w+\)(?=-?\d)", "", name)  # (Dot)1 in template arguments
    name = re.sub(r"\(.*$", "", name)
    return re.sub(r"^(void|int|float|bool|long) ", "", name).strip()


def inner_loop(instructions):
    """The instructions of the loop with the most dot products of its own; empty where there is none."""
    loops = []
    for i, instruction in enumerate(instructions):
        target = instruction.branch_target()
        if target is not None and instructions[0].address <= target <= instruction.address:
            loops.append((target, instruction.address))
    for dots in DOTS:
        own = {}
        for instruction in instructions:
            if dots.match(instruction.name):
                around = [loop for loop in loops if loop[0] <= instruction.address <= loop[1]]
                if around:
                    least = min(around, key=lambda loop: loop[1] - loop[0])
                    own[least] = own.get(least, 0) + 1
        if own:
            first, last = max(own, key=lambda loop: (own[loop], loop[0] - loop[1]))
            return [i for i in instructions if first <= i.address <= last]
    return []


def counts(loop):
    """(dots, instructions, loads, stack moves) of a loop."""
    for dots in DOTS:
        number = sum(1 for i in loop if dots.match(i.name))
        if number:
            break
    return (number, len(loop), sum(i.reads_memory() for i in loop), sum(i.moves_vector_to_or_from_stack() for i in loop))


def compiler_of(obj):
    """`clang 19` from the object's .comment section."""
    text = " ".join(binary.lines_of("readelf", "-p", ".comment", str(obj)))
    found = re.search(r"(clang) version (\d+)", text) or re.search(r"(GCC): .*?(\d+)\.\d+\.\d+", text)
    return f"{found.group(1).lower()} {found.group(2)}" if found else "unknown"


def measure(objects):
    """{(compiler, object, function): counts} of every function that has such a loop."""
    found = {}
    for obj in objects:
        compiler, name = compiler_of(obj), obj.name.removesuffix(".cpp.o")
        for function, instructions in functions(binary.lines_of("objdump", "-dC", "--no-show-raw-insn", str(obj))).items():
            loop = inner_loop(instructions)
            if loop:
                found[compiler, name, function] = counts(loop)
    return found


def read_table(text):
    rows = (line.split("\t") for line in text.splitlines() if line and not line.startswith("#"))
    return {tuple(row[:3]): tuple(int(n) for n in row[3:7]) for row in rows}


def table_text(table):
    return HEADER + "".join("\t".join([*key, *map(str, numbers)]) + "\n" for key, numbers in sorted(table.items()))


def findings(known, measured):
    """What got worse: per dot product where the unrolling changed, else by number. Fewer is no fault."""
    for key, now in sorted(measured.items()):
        where = f"{key[1]}: {key[2]} ({key[0]})"
        if key not in known:
            yield f"{where}: no counts yet; look at the loop, then --record"
            continue
        for name, was, got in list(zip(COUNTS, known[key], now))[1:]:
            if got * known[key][0] > was * now[0]:
                yield f"{where}: {got} {name} for {now[0]} dot products, were {was} for {known[key][0]}"
    for key in sorted(known):
        if key not in measured and any(key[0] == other[0] for other in measured):
            yield f"{key[1]}: {key[2]} ({key[0]}): has counts, but no such loop; --record"


def run(report, root, build, record=False):
    title = "inner loops of kernels as counted"
    objects = sorted(p for p in (build / "CMakeFiles" / "onw_kernels.dir").rglob("*.o") if binary.ISA_OBJECT.search(p.name))
    if not objects:
        report.skip(title, f"{build.name} is not built")
        return
    table = pathlib.Path(root) / TABLE
    known = read_table(table.read_text()) if table.exists() else {}
    try:
        measured = measure(objects)
    except subprocess.CalledProcessError as failed:
        report.skip(title, f"{failed.cmd[0]} failed: install binutils")
        return
    compilers = {key[0] for key in measured}
    if record:
        kept = {key: numbers for key, numbers in known.items() if key[0] not in compilers}
        table.write_text(table_text({**kept, **measured}))
        known = {**kept, **measured}
    unknown = sorted(compilers - {key[0] for key in known})
    if unknown:
        report.skip(title, f"no counts for {', '.join(unknown)}; --record writes them")
        measured = {key: numbers for key, numbers in measured.items() if key[0] not in unknown}
    if measured:
        report.check(title, findings(known, measured), f"{len(measured)} loops, {len(objects)} objects")

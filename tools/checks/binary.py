"""What the compiler made: no weak symbol from a kernel object, no instruction beyond the x86-64 baseline outside kernels.

An inline function that a kernel file compiles with -mavx512... can replace the baseline's copy at link time: then the
program dies on an older CPU, far from any kernel.
"""
import re
import subprocess

ISA_OBJECT = re.compile(r"_(avx2|avxvnni|avx512vnni|amx)\.cpp\.o$")
# Instructions that an x86-64 CPU without AVX, BMI or AMX does not know. (vmcall and friends, verr, verw are older.)
BEYOND = re.compile(r"^(v(?!er[rw]|m(call|launch|resume|xoff|ptr|read|write|clear|func|mcall|run|load|save))\w+|k(mov|or|and|xor|not|add|unpck|shift|test)\w*|"
                    r"andn|bextr|blsi|blsr|blsmsk|bzhi|mulx|pdep|pext|rorx|sarx|shlx|shrx|"
                    r"tdp\w+|tileload\w*|tilestore\w*|tilezero|tilerelease|ldtilecfg|sttilecfg)$")
# Third-party code in the program that asks the CPU before it uses wide registers.
CHOOSES_AT_RUN_TIME = [
    (r"memchr.*(avx2|Avx2)|(avx2|Avx2).*memchr", "crate memchr: chosen by is_x86_feature_detected"),
    (r"aho_corasick.*(avx2|Avx2|teddy|Teddy|packed)", "crate aho-corasick: the packed searcher is built only where AVX2 is"),
    (r"rand_chacha.*impl_avx", "crate rand_chacha: dispatched by ppv-lite86, which asks is_x86_feature_detected"),
    (r"core_arch.*x86.*(avx|_mm256|_mm512)", "Rust's own intrinsics, out of line: only functions marked with the same feature call them"),
    (r"compiler_builtins.*fmaf?_with_fma4?", "Rust's fma without hardware promise: chosen by CPUID"),
    (r"sha2.*(avx|x86)|sha256.*(avx|x86)", "crate sha2: chosen by cpufeatures"),
]
SYMBOL = re.compile(r"^[0-9a-f]+ <(.+)>:$")
INSTRUCTION = re.compile(r"^\s+[0-9a-f]+:\t(?:(?:lock|rep[a-z]*|notrack|data16|cs|ds|es|bnd|\{[a-z0-9]+\}) )*(\S+)")


def lines_of(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, errors="replace").stdout.splitlines()


def symbols(objects):
    """(object, type, name) of every symbol that the objects define."""
    if not objects:
        return []
    current, found = objects[0].name, []
    for line in lines_of("nm", "--defined-only", *map(str, objects)):
        parts = line.split()
        if line.endswith(":"):
            current = line[:-1].rsplit("/", 1)[-1]
        elif len(parts) == 3:
            found.append((current, parts[1], parts[2]))
    return found


def beyond_baseline(program, kernel_names):
    """Functions outside kernels that hold an instruction beyond the baseline, with the first such instruction."""
    excused = [re.compile(pattern) for pattern, _ in CHOOSES_AT_RUN_TIME]
    found, function, looked = {}, None, 0
    objdump = subprocess.Popen(["objdump", "-d", "--no-show-raw-insn", str(program)], stdout=subprocess.PIPE, text=True, errors="replace")
    for line in objdump.stdout:
        head = SYMBOL.match(line)
        if head:
            function, looked = head.group(1), looked + 1
            skip = function in kernel_names or any(e.search(function) for e in excused)
            continue
        instruction = INSTRUCTION.match(line)
        if instruction and not skip and function not in found and BEYOND.match(instruction.group(1)):
            found[function] = line.split("\t", 1)[1].strip()
    objdump.stdout.close()
    if objdump.wait() != 0:
        raise RuntimeError(f"objdump -d {program} failed")
    return found, looked


def run(report, _root, build):
    title_weak, title_wide = "kernel objects define no weak symbol", "the program keeps to the baseline outside kernels"
    program = build / "onw"
    if not (build / "build.ninja").exists():
        report.skip(title_weak, f"{build.name} is not built")
        report.skip(title_wide, f"{build.name} is not built")
        return
    kernels = build / "CMakeFiles" / "onw_kernels.dir"
    objects = sorted(p for p in kernels.rglob("*.o") if ISA_OBJECT.search(p.name))
    defined = symbols(objects)
    weak = [f"{obj}: {name} (make it static, or force its inlining)" for obj, kind, name in defined if kind in "WwVvu"]
    report.check(title_weak, weak, f"{len(objects)} objects")
    if not program.exists():
        report.skip(title_wide, f"{build.name}/onw is not built")
        return
    kernel_names = {name for _, kind, name in defined if kind in "Tt"}
    wide, looked = beyond_baseline(program, kernel_names)
    report.check(title_wide, (f"{name}: {what}" for name, what in wide.items()), f"{looked} functions")

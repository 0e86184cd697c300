"""What a figure must say about the machine that made it, without naming the machine."""
import pathlib
import platform


def _field(file, key):
    for line in pathlib.Path(file).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def card():
    """Processor, the instruction sets that matter here, cores, memory, kernel, huge pages."""
    flags = set(_field("/proc/cpuinfo", "flags").split())
    known = ["avx2", "avx_vnni", "avx512f", "avx512_vnni", "amx_int8", "amx_bf16"]
    huge = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return {
        "cpu": _field("/proc/cpuinfo", "model name"),
        "instructions": [name for name in known if name in flags],
        "cores": sum(line.startswith("processor") for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()),
        "virtual": "hypervisor" in flags,
        "memory_gb": round(int(_field("/proc/meminfo", "MemTotal").split()[0]) / 2**20),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "huge_pages": huge.read_text().split("[")[1].split("]")[0] if huge.exists() else "",
    }

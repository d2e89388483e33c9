"""Turn our .proto files into what the package loads: a serialized file descriptor and a typing stub for each.

The package ships descriptors, not generated Python. Generated code refuses to run under a protobuf release it was not
made for; a descriptor goes through protobuf's public pool API and works with every release from 5.26 on.

    python tools/compile_protos.py            rewrite the files
    python tools/compile_protos.py --check    exit 1 if a file is not what its .proto says
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"
PACKAGE = PYPROJECT.parent / "src" / "dranet"

# .proto file -> module that loads its descriptor (the stub carries the module's name)
MODULES = {
    PACKAGE / "kubernetes" / "nri" / "nri.proto": "messages",
    PACKAGE / "kubernetes" / "nri" / "ttrpc.proto": "ttrpc_messages",
    PACKAGE / "kubernetes" / "kubelet" / "registration.proto": "registration_api",
    PACKAGE / "kubernetes" / "kubelet" / "dra.proto": "dra_api",
    PACKAGE / "kubernetes" / "kubelet" / "health.proto": "health_api",
}


def compile_proto(proto: Path) -> tuple[bytes, str]:
    """The serialized FileDescriptorProto and the typing stub of one .proto file."""
    with tempfile.TemporaryDirectory() as folder:
        fileset = Path(folder) / "set.pb"
        arguments = [f"-I{proto.parent}", f"--descriptor_set_out={fileset}", f"--pyi_out={folder}", proto.name]
        if protoc.main(["protoc", *arguments]) != 0:
            raise SystemExit(f"{proto}: protoc refused the file; its message stands above")
        (file,) = FileDescriptorSet.FromString(fileset.read_bytes()).file
        stub = (Path(folder) / f"{proto.stem}_pb2.pyi").read_text()
    return file.SerializeToString(deterministic=True), formatted(f"# Made by tools/compile_protos.py\n{stub}")


def formatted(stub: str) -> str:
    """protoc's stub without unused parts, made strict, in our format."""
    stub = re.sub(r"^ +(__slots__ =|\w+_FIELD_NUMBER:).*\n", "", stub, flags=re.MULTILINE)
    stub = re.sub(r"\b_Mapping\b(?!\[)(?=[\],])", "_Mapping[str, object]", stub)
    stub = stub.replace("**kwargs)", "**kwargs: object)")
    return ruff("format", ruff("check", stub, "--fix", "--select", "I,UP,F"))


def ruff(command: str, text: str, *options: str) -> str:
    settings = ["--quiet", "--config", str(PYPROJECT), "--stdin-filename", "stub.pyi"]
    arguments = [sys.executable, "-m", "ruff", command, *settings, *options, "-"]
    return subprocess.run(arguments, input=text, capture_output=True, text=True, check=True).stdout


def outdated() -> list[Path]:
    """The files that differ from what their .proto says."""
    return [path for path, content in outputs().items() if not path.exists() or path.read_bytes() != content]


def outputs() -> dict[Path, bytes]:
    files: dict[Path, bytes] = {}
    for proto, module in MODULES.items():
        descriptor, stub = compile_proto(proto)
        files[proto.with_suffix(".pb")] = descriptor
        files[proto.with_name(f"{module}.pyi")] = stub.encode()
    return files


def main() -> int:
    if "--check" in sys.argv[1:]:
        stale = outdated()
        for path in stale:
            print(f"{path}: not what its .proto says; run tools/compile_protos.py")
        return 1 if stale else 0
    for path, content in outputs().items():
        path.write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())

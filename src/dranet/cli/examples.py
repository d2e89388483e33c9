"""Examples that `--help` shows below the options, for commands whose help text has none."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "inventory": ("dranet inventory", "dranet inventory -o json"),
    "status": ("dranet status", "dranet status --node gpu-7 -o json", "dranet status --wait 300"),
    "explain": ("dranet explain job.yaml --shape a4-highgpu-8g=2", "dranet explain --claim team-a/train-0 --live"),
    "topo": ("dranet topo --shape a4-highgpu-8g", "dranet topo --slices slices.yaml --node gpu-7"),
    "shape": ("dranet shape list", "dranet shape show dgx-h100"),
    "shape list": ("dranet shape list",),
    "shape show": ("dranet shape show dgx-h100",),
    "shape capture": ("dranet shape capture --name my-machine -o my-machine.toml",),
    "shape import": ("dranet shape import topo.txt --name my-machine -o my-machine.toml",),
    "shape slices": ("dranet shape slices a4-highgpu-8g",),
    "report": ("dranet report job.log", "kubectl logs job/train | dranet report --claim train-0 --claim train-1"),
    "check pair": ("dranet check pair --members 2 --rank 0", "dranet check pair --members 2 --rank 1 --first pod-0"),
    "pod-info": ("dranet pod-info",),
    "serve": ("dranet serve", "dranet serve --slices slices.yaml"),
    "demo": ("dranet demo", "dranet demo --list"),
    "init": ("dranet init --cloud gke",),
    "enable-nri": ("dranet enable-nri",),
    "completion": ("dranet completion bash > /etc/bash_completion.d/dranet",),
}


def epilog(name: str) -> str | None:
    """The examples of a command as click prints them; None if its help text has its own."""
    lines = EXAMPLES.get(name, ())
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)]) if lines else None

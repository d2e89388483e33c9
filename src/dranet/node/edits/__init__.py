"""What containers get: CDI specs, device metadata, settings for NCCL, UCX and MPI, and NCCL topology files."""

"""What the commands for installing know: a cloud's tools, and containerd's configuration."""

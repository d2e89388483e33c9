"""From the kubelet: claims become plans, plans are kept, and end."""

"""What people write: manifests read with the place of every field, turned into pods and claims."""

#!/bin/sh
# Sign what `make publish` pushed, with cosign and without a key (the identity is the workflow's): sign.sh dist
# Everything is named by digest, from the release's own files.
set -eu
dist=$1
here=$(dirname "$0")
predicate=$(mktemp)
trap 'rm -f "$predicate"' EXIT
python3 -c 'import json, sys; json.dump(json.load(open(sys.argv[1]))["predicate"], sys.stdout)' \
    "$dist/provenance.json" >"$predicate"

python3 "$here/artifacts.py" "$dist" | while read -r reference; do
    cosign sign --yes "$reference"
    cosign attest --yes --type slsaprovenance1 --predicate "$predicate" "$reference"
done
python3 "$here/artifacts.py" "$dist" --contents | while read -r reference contents; do
    cosign attest --yes --type spdxjson --predicate "$contents" "$reference"
done
cosign sign-blob --yes --bundle "$dist/SHA256SUMS.sigstore.json" "$dist/SHA256SUMS"

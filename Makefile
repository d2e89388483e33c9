# Every target does its own set-up. `make help` lists them.
SHELL := /bin/bash
PY := .venv/bin/python
.DEFAULT_GOAL := help

.venv/ready: pyproject.toml constraints.txt tools/setup.sh
	@tools/setup.sh

.PHONY: help setup demo demo-picture test check format bench bench-cluster fleet soak docs docs-site golden image release publish release-test \
	install-yaml parts vm churn vm-shell e2e cluster cluster-down workloads clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: .venv/ready ## make the virtual environment ready

demo: .venv/ready ## show the product at work on this machine
	@$(PY) -m dranet demo

demo-picture: .venv/ready ## run one story of the demo and draw the README's picture of it
	@$(PY) -m tools.demo_picture

test: .venv/ready ## run the tests of the host tier
	@tools/browser.sh
	@$(PY) -m pytest -q -n 2 --dist loadgroup -p tests.skipped $(ARGS)

check: .venv/ready ## lint, types, import contracts, generated files
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports
	@$(PY) -m tools.docs --check

format: .venv/ready ## format the code
	@.venv/bin/ruff check --fix . && .venv/bin/ruff format .

docs: .venv/ready ## write the generated reference pages
	@$(PY) -m tools.docs

bench: .venv/ready ## measure, side by side with the tools people know; prints JSON
	@$(PY) -m bench

bench-cluster: .venv/ready ## drivers on a real two-node Kubernetes; SECOND="command" for another beside ours
	@$(PY) -m bench.cluster --runs $(or $(RUNS),5) --cycles $(or $(CYCLES),12) $(if $(SECOND),--second "$(SECOND)")

fleet: .venv/ready ## what N=500 nodes cost an API server, with a real one on this machine; ARGS=--short
	@$(PY) -m bench.fleet $(or $(N),500) $(ARGS)

soak: .venv/ready ## hours of a node's life in MINUTES=30: pods churned, links flapped, the API server killed
	@$(PY) -m tests.soak.run $(or $(MINUTES),30)

.venv-site/ready: tools/site-requirements.txt
	@echo "setup: installing the site's packages into .venv-site"
	@python3 -m venv .venv-site
	@.venv-site/bin/python -m pip install --quiet --disable-pip-version-check --requirement tools/site-requirements.txt
	@touch .venv-site/ready

docs-site: .venv-site/ready ## the documentation as a site, in site/; a link that leads nowhere fails it
	@python3 -m tools.site

golden: .venv/ready ## compare with recorded answers of the real scheduler: make golden FILE=path
	@$(PY) -m dranet golden $(FILE)

image: .venv/ready ## assemble the driver's OCI image without a container engine
	@$(PY) deploy/image/build.py

release: .venv/ready ## everything a release consists of, in dist/: make release VERSION=0.2.0 REGISTRY=host/path
	@$(PY) deploy/release/release.py $(or $(VERSION),$(error VERSION=x is missing)) $(if $(REGISTRY),--registry $(REGISTRY))

publish: .venv/ready ## push the image and the chart in dist/ to a registry: make publish REGISTRY=host/path
	@$(PY) deploy/release/publish.py $(or $(REGISTRY),$(error REGISTRY=host/path is missing))

release-test: .venv/ready ## make a release twice, publish it, run both images and the package on other Pythons
	@$(PY) -m pytest -q tests/release $(ARGS)

install-yaml: .venv/ready ## render deploy/install.yaml from the chart; needs helm (HELM=path)
	@$${HELM:-helm} template dranet deploy/helm/dranet --namespace kube-system --no-hooks > deploy/install.yaml
	@cp deploy/install.yaml deploy/kustomize/base/install.yaml

parts: .venv/ready ## fetch and build what the higher tiers need; cached outside the tree
	@$(PY) tests/cluster/kubebed build all
	@$(PY) deploy/image/build.py
	@tools/browser.sh

campaign: .venv/ready ## hostile pods on a node where things go wrong: make campaign N=10000 SEED=1
	@unshare --pid --fork --kill-child --mount-proc $(PY) -m tests.adversary.campaign --count $(or $(N),1000) $(if $(SEED),--seed $(SEED)) \
		$(if $(WORKERS),--workers $(WORKERS))

campaign-vm: .venv/ready ## the same in the virtual machine, with its kernel and its real cards: N=100 SEED=1
	@$(PY) -m tests.vm.run --seconds $$(($(or $(N),4) * 180 + 300)) tests/vm/test_campaign.py -s \
		--sequences $(or $(N),4) --first-seed $(or $(SEED),1)

successors: .venv/ready ## pods deleted by force on a real Kubernetes, and their successors: make successors N=1000
	@SUCCESSORS=$(or $(N),100) $(PY) -m pytest -q tests/cluster/test_successors.py

mutations: .venv/ready ## plant faults in the driver; each must be noticed by a test. ONLY=word for some
	@$(PY) -m tests.mutations.run $(if $(ONLY),--only "$(ONLY)")

vm: .venv/ready ## tests on a kernel with RDMA, NUMA, SR-IOV and VRF, in a virtual machine; ARCH=arm64 for another kind
	@$(PY) -m tests.vm.run $(if $(ARCH),--arch $(ARCH)) $(ARGS)

churn: .venv/ready ## MINUTES=30 of pods that come and go on the virtual machine's cards, which must make no fault
	@$(PY) -m tests.vm.run --seconds $$(($(or $(MINUTES),30) * 60 + 300)) tests/vm/churn.py -s \
		--churn-minutes $(or $(MINUTES),30)

vm-shell: .venv/ready ## a shell in that machine
	@$(PY) -m tests.vm.run --shell

e2e: .venv/ready ## every scenario on a real two-node Kubernetes; K8S=1.34 for another version
	@$(PY) -m pytest -q tests/cluster --ignore tests/cluster/test_workloads.py \
		--ignore tests/cluster/test_successors.py $(ARGS)

cluster: .venv/ready ## bring that Kubernetes up and leave it; WORKLOADS=1 with operators, images and driver
	@$(PY) tests/cluster/$(if $(WORKLOADS),workloads,kubebed) up

cluster-down: .venv/ready ## take it down
	@$(PY) tests/cluster/kubebed down

workloads: .venv/ready ## real MPI and Ray jobs over claimed cards, on that Kubernetes
	@$(PY) -m pytest -q tests/cluster/test_workloads.py $(ARGS)

clean: ## remove what the targets made inside the tree
	rm -rf .venv .venv-site site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .vm-image dist build bench/out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

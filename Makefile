# Every target installs what it needs. `make help` lists them.
SHELL := /bin/bash
PY := .venv/bin/python
CODESPELL := .venv/bin/codespell --builtin clear --dictionary - --dictionary tools/words.txt
.DEFAULT_GOAL := help

.venv/ready: pyproject.toml constraints.txt tools/setup.sh
	@tools/setup.sh

.PHONY: help setup demo demo-picture test browser containerd containerd-1.7 crio long test-under-load campaign campaign-short mutations ci record check words format bench bench-cluster fleet soak docs docs-site golden image release release-lock publish release-test \
	install-yaml parts vm churn vm-shell e2e cluster cluster-down workloads clean

help: ## list the targets
	@grep -hE '^[a-z0-9.-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: .venv/ready ## create the virtual environment

demo: .venv/ready ## run the demo on this machine
	@$(PY) -m dranet demo

demo-picture: .venv/ready ## run one scenario of the demo and draw the README's picture
	@$(PY) -m tools.demo_picture

# Most tests wait for the kernel or for another process: eight workers keep two cores busy.
WORKERS := 8
PYTEST = $(PY) -m pytest -q -n $(WORKERS) --dist loadgroup -p tests.skipped

test: .venv/ready ## run the tests of the host tier
	@$(PYTEST) -m "not browser and not containerd and not campaign and not long" $(ARGS)

browser: .venv/ready ## the page in a real browser
	@tools/browser.sh
	@$(PYTEST) -n 2 -m browser tests/web tests/testing $(ARGS)

containerd: .venv/ready ## a real containerd; SLOW=all for the whole matrix of slow devices
	@DRANET_SLOW=$(SLOW) $(PYTEST) -n 4 tests/containerd $(ARGS)

containerd-1.7: .venv/ready ## the same scenarios with containerd 1.7
	@$(PY) -c "from tests.cluster.kubebed import parts; parts.containerd_17_dir()"
	@DRANET_RUNTIME=containerd-1.7 DRANET_SLOW=$(SLOW) $(PYTEST) -n 4 tests/containerd $(ARGS)

CRIO_TESTS := tests/containerd/test_nri.py tests/containerd/test_driver.py tests/containerd/test_slow_attach.py
crio: .venv/ready ## the same scenarios with a real CRI-O, built here at the first time (7 minutes)
	@$(PY) tests/cluster/kubebed build crio
	@DRANET_RUNTIME=crio DRANET_SLOW=$(SLOW) $(PYTEST) -n 4 $(CRIO_TESTS) $(ARGS)

long: .venv/ready ## kill the driver at every crash point; the demo; API servers with faults; how good the bandwidth model is
	@$(PYTEST) -m "long and not browser" tests/node tests/kubernetes tests/testing tests/machines $(ARGS)

campaign-short: .venv/ready ## 200 sequences of the campaign and some planted faults, always the same
	@$(PYTEST) -n 4 -m campaign tests/campaign tests/mutations $(ARGS)

test-under-load: .venv/ready ## the host tier next to two busy loops per core, with new inputs
	@$(PY) -m tools.under_load make test ARGS="--hypothesis-profile=new-inputs"

check: .venv/ready ## lint, types, import contracts, generated files
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports
	@$(PY) -m tools.docs --check
	@$(CODESPELL) src docs deploy examples tools README.md CONTRIBUTING.md SECURITY.md .github Makefile

words: .venv/ready ## spelling, and words that tools/words.txt replaces
	@$(CODESPELL) \
		src tests docs deploy examples tools bench .github README.md CONTRIBUTING.md SECURITY.md CODE_OF_CONDUCT.md Makefile

format: .venv/ready ## format the code
	@.venv/bin/ruff check --fix . && .venv/bin/ruff format .

docs: .venv/ready ## write the generated reference pages
	@$(PY) -m tools.docs

bench: .venv/ready ## measure, in comparison with common tools; prints JSON
	@$(PY) -m bench

bench-cluster: .venv/ready ## measure drivers on a real two-node Kubernetes; SECOND="command" for a second driver
	@$(PY) -m bench.cluster --runs $(or $(RUNS),5) --cycles $(or $(CYCLES),12) $(if $(SECOND),--second "$(SECOND)")

fleet: .venv/ready ## what N=500 nodes cost an API server, with a real one on this machine; ARGS=--short
	@$(PY) -m bench.fleet $(or $(N),500) $(ARGS)

soak: .venv/ready ## stress one node for MINUTES=30: churn pods, flap links, kill the API server
	@$(PY) -m tests.soak.run $(or $(MINUTES),30)

.venv-site/ready: tools/site-requirements.txt
	@echo "setup: installing the site's packages into .venv-site"
	@python3 -m venv .venv-site
	@.venv-site/bin/python -m pip install --quiet --disable-pip-version-check --requirement tools/site-requirements.txt
	@touch .venv-site/ready

docs-site: .venv-site/ready ## build the documentation website in site/; a broken link fails it
	@python3 -m tools.site

golden: .venv/ready ## compare with recorded answers of the real scheduler: make golden FILE=path
	@$(PY) -m tests.golden $(FILE)

record: .venv/ready ## ask a real Kubernetes again and compare with the recordings: make record K8S=1.37.2 SAMPLE=200
	@$(PY) -m tools.recorders $(or $(KIND),all) --kubernetes $(or $(K8S),1.36.4) --sample $(or $(SAMPLE),0) $(if $(WRITE),--write)

image: .venv/ready ## assemble the driver's OCI image without a container engine
	@$(PY) deploy/image/build.py

release: .venv/ready ## build a release in dist/: make release VERSION=0.2.0 REGISTRY=host/path
	@$(PY) deploy/release/release.py $(or $(VERSION),$(error VERSION=x is missing)) $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(LOCKED),--locked)

release-lock: .venv/ready ## lock the image's Debian packages and wheels as they are now
	@$(PY) deploy/image/lock.py

publish: .venv/ready ## push the image and the chart in dist/ to a registry: make publish REGISTRY=host/path
	@$(PY) deploy/release/publish.py $(or $(REGISTRY),$(error REGISTRY=host/path is missing))

release-test: .venv/ready ## build a release twice, publish it, run both images and the package on other Pythons
	@$(PY) -m pytest -q tests/release $(ARGS)

install-yaml: .venv/ready ## render deploy/install.yaml from the chart; needs helm (HELM=path)
	@$${HELM:-helm} template dranet deploy/helm/dranet --namespace kube-system --no-hooks > deploy/install.yaml
	@cp deploy/install.yaml deploy/kustomize/base/install.yaml

parts: .venv/ready ## fetch and build what the higher tiers need; cached outside the tree
	@$(PY) tests/cluster/kubebed build all
	@$(PY) deploy/image/build.py
	@tools/browser.sh

campaign: .venv/ready ## malicious pods on a faulty node: make campaign N=10000 SEED=1
	@unshare --pid --fork --kill-child --mount-proc $(PY) -m tests.campaign.campaign --count $(or $(N),1000) $(if $(SEED),--seed $(SEED)) \
		$(if $(WORKERS),--workers $(WORKERS))

campaign-vm: .venv/ready ## the same in the virtual machine, with its kernel and its NICs: N=100 SEED=1
	@$(PY) -m tests.vm.run --seconds $$(($(or $(N),4) * 180 + 300)) tests/vm/test_campaign.py -s --silent 600 \
		--sequences $(or $(N),4) --first-seed $(or $(SEED),1)

successors: .venv/ready ## force-delete pods on a real Kubernetes and start their successors: make successors N=1000
	@SUCCESSORS=$(or $(N),100) $(PY) -m pytest -q tests/cluster/test_successors.py

mutations: .venv/ready ## plant faults in the driver; a test must find each. ONLY=word for some
	@$(PY) -m tests.mutations.run $(if $(ONLY),--only "$(ONLY)")

vm: .venv/ready ## tests on a kernel with RDMA, NUMA, SR-IOV and VRF, in a virtual machine; ARCH=arm64 for another architecture
	@$(PY) -m tests.vm.run $(if $(ARCH),--arch $(ARCH)) $(ARGS)

churn: .venv/ready ## start and stop pods on the virtual machine's NICs for MINUTES=30, without a false fault
	@$(PY) -m tests.vm.run --seconds $$(($(or $(MINUTES),30) * 60 + 300)) tests/vm/churn.py -s --silent 600 \
		--churn-minutes $(or $(MINUTES),30)

vm-shell: .venv/ready ## a shell in that machine
	@$(PY) -m tests.vm.run --shell

e2e: .venv/ready ## every scenario on a real two-node Kubernetes; K8S=1.34 for another version
	@$(PY) -m pytest -q tests/cluster --ignore tests/cluster/test_workloads.py \
		--ignore tests/cluster/test_successors.py $(ARGS)

cluster: .venv/ready ## start that Kubernetes and leave it running; WORKLOADS=1 with operators, images and driver
	@$(PY) tests/cluster/$(if $(WORKLOADS),workloads,kubebed) up

cluster-down: .venv/ready ## stop it
	@$(PY) tests/cluster/kubebed down

workloads: .venv/ready ## real MPI and Ray jobs over claimed NICs, on that Kubernetes
	@$(PY) -m pytest -q tests/cluster/test_workloads.py $(ARGS)

ci: .venv/ready ## every stage, side by side, with a table at the end; STAGES="check host" for some
	@$(PY) -m tools.ci $(STAGES)

clean: ## remove what the targets created inside the tree
	rm -rf .venv .venv-site site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .vm-image dist build bench/out .ci-logs
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

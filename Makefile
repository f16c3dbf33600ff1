# Everything a developer or the build needs; `make` alone lists it.

GO          ?= go
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOSEC       := github.com/securego/gosec/v2/cmd/gosec@v2.22.11
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.1.4
FUZZTIME    ?= 10s
TESTFLAGS   ?= -timeout 15m
BENCHFLAGS  ?=
TORTURE     ?= torture-out
TORTUREFUZZ ?= 30s

# The folders that are Go modules of their own, the root first.
MODULES := . $(patsubst %/go.mod,%,$(wildcard interop/go.mod deploy/check/go.mod))

# each runs a command in every module and stops at the first that fails.
each = for dir in $(MODULES); do (cd $$dir && $(1)) || exit 1; done

.DEFAULT_GOAL := help
.PHONY: release release-check deploy-check gosec vulncheck
.PHONY: help run build test fmt fmt-check vet lint fuzz bench scale nodes torture chain-soak test-long tidy-check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## build and start the gateway on its embedded store
	./bin/gateway serve

build: ## build bin/gateway
	$(GO) build -o bin/gateway ./cmd/gateway

test: ## all tests with the race detector (installs what they need where it may)
	@scripts/setup-test.sh
	$(GO) test -race $(TESTFLAGS) ./...
	@# The gateway is built by a process of the tests' own, which Go's test cache does not see.
	cd interop && $(GO) test -race -count=1 $(TESTFLAGS) ./...

fmt: ## format the code
	gofmt -w .

fmt-check: ## fail on code that is not formatted
	@files=$$(gofmt -l .); [ -z "$$files" ] || { echo "not formatted:"; echo "$$files"; exit 1; }

vet: ## go vet
	@$(call each,$(GO) vet ./...)

lint: ## staticcheck, pinned
	@$(call each,$(GO) run $(STATICCHECK) ./...)

fuzz: ## run each fuzz target for FUZZTIME (10s)
	@scripts/fuzz.sh $(FUZZTIME)

bench: bin/loadtest ## measure the gateway beside its reference servers (BENCHFLAGS)
	@scripts/setup-test.sh
	./bin/loadtest bench $(BENCHFLAGS)

scale: bin/loadtest ## measure how the cost grows with connections and stored rows (BENCHFLAGS)
	@scripts/setup-test.sh
	./bin/loadtest scale $(BENCHFLAGS)

nodes: bin/loadtest ## measure three nodes over one PostgreSQL beside one (BENCHFLAGS)
	@scripts/setup-test.sh
	./bin/loadtest nodes $(BENCHFLAGS)

torture: ## break things around real gateways for two and a half hours, and judge; goes on where it was stopped
	@scripts/setup-test.sh
	$(GO) run ./torture/cmd campaign --runs 234 --forward both --limit 50m --dir $(TORTURE)/postgres
	$(GO) run ./torture/cmd campaign --engine --runs 198 --forward both --limit 60m --dir $(TORTURE)/engine
	$(GO) run ./torture/cmd campaign --chain --runs 38 --forward both --limit 30m --dir $(TORTURE)/chain
	$(GO) run ./torture/cmd sqlite --dir $(TORTURE)/sqlite
	@$(MAKE) --no-print-directory fuzz FUZZTIME=$(TORTUREFUZZ)

.PHONY: bin/loadtest
bin/loadtest:
	$(GO) build -o $@ ./scripts/loadtest

# Left out: tools and helpers of tests, which nobody reaches; G104, since an error that
# is dropped is dropped on purpose here; G115, since nonces, counts and codes are
# bounded where they come in, and a database column is what its check allows.
gosec: ## look for what is often unsafe; what is not carries its reason
	$(GO) run $(GOSEC) -quiet -exclude=G104,G115 $(foreach d,deploy interop internal scripts torture refserver dashboards nonce/storetest,-exclude-dir=$(d)) ./...

vulncheck: ## look for known vulnerabilities in what is linked (asks vuln.go.dev)
	$(GO) run $(GOVULNCHECK) ./...

release: ## build dist/: static programs for five platforms, checksums, bill of materials
	@scripts/release.sh

release-check: ## build the last commit twice, elsewhere, and compare every byte
	@scripts/release-check.sh

deploy-check: ## hold deploy/ against the Kubernetes API, Compose and systemd
	@systemd-analyze --version >/dev/null 2>&1 || echo "no systemd-analyze here: the unit is not looked at"
	cd deploy/check && $(GO) test -count=1 .

# What it says of the gateway is judged; what it says of the others is for the table.
chain-soak: ## ten minutes of payments while chain, nodes, workers and gateways fail; then the same without a gateway
	@scripts/setup-test.sh
	cd interop && $(GO) run ./soak --who gateway --report soak.json
	cd interop && $(GO) run ./soak --who viem,viem+fresh,ethers,ethers+fresh,redis,redis+fresh --duration 3m --report soak-others.json

test-long: torture chain-soak ## what takes hours

tidy-check: ## fail when go.mod or go.sum is not tidy
	@$(call each,$(GO) mod tidy -e -diff)

clean: ## remove what the build made
	rm -rf bin dist

# sbxhost. `make help` lists the targets; `make test` is the one to start with.

GO ?= go
GOLANGCI_VERSION := v2.15.0
BIN := $(CURDIR)/bin
FUZZTIME ?= 10s
BENCHTIME ?= 1s
CRASHTIME ?= 10m
PKG ?= ./...

.PHONY: help build test race vet fmt fmt-check lint tools fuzz fuzz-redact crash bench bench-all shims clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## a static bin/sbxhost
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(BIN)/sbxhost ./cmd/sbxhost

test: ## everything that can be tested here; says loudly what could not (CI=true: nothing may be left out)
	@.ci/setup test
	@.ci/test $(PKG)

# Left out are the packages that only run whole conformance kits on freshly built
# guests: compiling those under the race detector takes longer than all the rest,
# and what they exercise is in plugin, host and cmd/sbxhost, which stay in.
# Packages run one at a time: their tests run side by side already, and some watch
# the clock.
race: ## the tests under the race detector, without the longest (needs a C compiler)
	@.ci/setup race
	SBXHOST_TEST_ENGINE=$$(.ci/engine host) CGO_ENABLED=1 $(GO) test -race -short -p 1 -timeout 30m $$($(GO) list $(PKG) | grep -vE '/(plugin/plugintest|plugin/scaffold|plugins/examples)$$')

vet: ## go vet for every platform we build for
	@.ci/vet $(PKG)

fmt: ## gofmt the tree
	gofmt -l -w $$(git ls-files '*.go' | grep -v /testdata/)

fmt-check: ## fail if something is not gofmt-ed
	@files=$$(gofmt -l $$(git ls-files '*.go' | grep -v /testdata/)); \
	if [ -n "$$files" ]; then echo "not gofmt-ed:"; echo "$$files"; exit 1; fi

lint: tools ## golangci-lint
	$(BIN)/golangci-lint run ./...

tools: $(BIN)/golangci-lint-$(GOLANGCI_VERSION) ## install the linter into ./bin

$(BIN)/golangci-lint-$(GOLANGCI_VERSION):
	GOBIN=$(BIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@touch $@

fuzz: ## every fuzz target for FUZZTIME (default 10s) each
	@.ci/fuzz $(FUZZTIME)

fuzz-redact: ## the redactor against its naive model for a minute
	@.ci/fuzz-redact 60s

crash: ## kill a host at each of its steps, and at random moments for CRASHTIME (default 10m)
	SBXHOST_CRASH_TIME=$(CRASHTIME) $(GO) test ./internal/crashtest -count 1 -timeout 12h -run 'TestEveryStep|TestAnyMoment'

bench: ## ratios to peers and ceilings in one run, beside the targets (needs the module proxy once; see bench/README.md)
	@.ci/setup bench
	@cd bench && $(GO) run ./report -benchtime $(BENCHTIME)

bench-all: ## every benchmark of the packages, as they are
	@.ci/setup bench
	$(GO) test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) $(PKG)

shims: ## rebuild the embedded in-sandbox supervisor, byte for byte reproducible
	@for arch in amd64 arm64; do \
	  echo "shim linux/$$arch"; \
	  CGO_ENABLED=0 GOOS=linux GOARCH=$$arch GOFLAGS= GOEXPERIMENT= GOAMD64=v1 GOARM64=v8.0 \
	  $(GO) build -trimpath -buildvcs=false -ldflags='-s -w -buildid=' \
	    -o internal/shim/shimbin/sbx-shim_linux_$$arch ./internal/shim/cmd/shim || exit 1; \
	done
	@$(GO) env GOVERSION > internal/shim/shimbin/go.version

clean: ## remove what the targets above made
	rm -rf $(BIN)

# What people and CI call; `make help` lists it. Needs Go, git, a C compiler (for
# -race) and the three servers' programs, which root on Debian gets installed. The
# tools come by version from tools/go.mod and land in .bin.

BIN      := $(CURDIR)/.bin
SERVERS  := $(BIN)/servers
FUZZTIME ?= 10s
# Of one package. A busy machine takes several times as long as a quiet one.
TIMEOUT  ?= 40m
TESTARGS ?= -count=1
BENCHES  ?= chans core scale peers mechanisms window stores

# Whatever the caller's shell says, the workspace is this one.
export GOWORK := $(CURDIR)/go.work
# The race detector sleeps a second at every exit otherwise.
export GORACE := atexit_sleep_ms=0

# $(call each,COMMAND) runs COMMAND in every module of the workspace, as a user
# of that one module would: without the workspace.
each = dirs=$$(go list -m -f '{{.Dir}}') && for d in $$dirs; do \
	(cd "$$d" && export GOWORK=off && $(1)) || { echo "make: failed in $$d" >&2; exit 1; }; done

.NOTPARALLEL:
.PHONY: help test check compiler tools fmt format lint tidy alone job evidence race servers bench bench-full measure fuzz always

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

test: ## everything, as CI does it; leaves the tree as it was
	@before=$$(git status --porcelain) || exit 1; \
	$(MAKE) --no-print-directory check || exit 1; \
	after=$$(git status --porcelain); [ "$$before" = "$$after" ] || \
	{ echo "make test: the tree has changed:" >&2; echo "$$after" >&2; exit 1; }

check: compiler lint alone job evidence race

compiler:
	@echo '#include <stdlib.h>' | $$(go env CC) -fsyntax-only -x c - && [ "$$(go env CGO_ENABLED)" = 1 ] || \
	{ echo "make: the race detector needs cgo: install a C compiler with its headers" \
	"(Debian: gcc libc6-dev) and don't set CGO_ENABLED=0" >&2; exit 1; }

tools:
	@echo "== tools"
	@cd tools && GOWORK=off GOBIN=$(BIN) go install tool

fmt: tools ## format all Go files
	$(BIN)/gofumpt -w .

lint: tools format tidy ## formatting, go.mod files, vet, staticcheck
	@echo "== vet"
	@go vet work
	@echo "== staticcheck"
	@$(BIN)/staticcheck work

format: tools
	@echo "== gofumpt"
	@files=$$($(BIN)/gofumpt -l .) || exit 1; [ -z "$$files" ] || \
	{ echo "not formatted, run make fmt:" >&2; echo "$$files" >&2; exit 1; }

tidy:
	@echo "== go mod tidy"
	@$(call each,go mod tidy -diff)
	@cd tools && GOWORK=off go mod tidy -diff

alone: ## each module without the workspace: build, vet, short tests
	@echo "== each module with GOWORK=off"
	@$(call each,go build -o /dev/null ./... && go vet ./... && go test -short -timeout $(TIMEOUT) ./...)

job: ## the main job, on its built binary
	@echo "== go run ./examples/webhooks -json"
	@go build -o $(BIN)/webhooks ./examples/webhooks
	@$(BIN)/webhooks -json

evidence: ## the tests of bench at full length, which are shorter with the race detector
	@echo "== go test ./bench/... ./bench/peers"
	@go test -timeout $(TIMEOUT) $(TESTARGS) ./bench/... ./bench/peers/...

race: compiler $(SERVERS) ## all tests of all modules with the race detector, beside real servers
	$(SERVERS) -- go test -race -timeout $(TIMEOUT) $(TESTARGS) work

servers: $(SERVERS) ## PostgreSQL, MariaDB and Redis until Ctrl-C; prints their addresses
	$(SERVERS)

$(SERVERS): always
	@go build -o $@ ./integration/servers

bench: $(SERVERS) ## what it costs and what the evidence says, quick: writes docs/results; fails above a limit
	$(SERVERS) -fsync -- $(MAKE) --no-print-directory measure MEASURE=-quick

bench-full: $(SERVERS) ## the same at length, an hour or more
	$(SERVERS) -fsync -- $(MAKE) --no-print-directory measure MEASURE=

# A program that is above a limit says so, and the others run all the same.
measure:
	@failed=; for p in $(BENCHES); do \
	case $$p in window) flags="-real $(MEASURE)";; chans|core) flags=;; *) flags="$(MEASURE)";; esac; \
	echo "== go run ./bench/$$p $$flags"; \
	go run ./bench/$$p $$flags -results docs/results || failed="$$failed $$p"; done; \
	go run ./bench/quote || exit 1; \
	[ -z "$$failed" ] || { echo "make: above a limit, or failed:$$failed" >&2; exit 1; }

fuzz: ## each fuzz target for FUZZTIME (10s)
	@dirs=$$(go list -f '{{.Dir}}' work) && for d in $$dirs; do \
	for f in $$(cat "$$d"/*_test.go 2>/dev/null | sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p'); do \
	echo "== $$f in $$d"; \
	(cd "$$d" && go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) .) || exit 1; done; done

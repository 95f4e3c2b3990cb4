# The version that every command prints with --version.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo 0.0.0-dev)
LDFLAGS := -s -w -X main.version=$(VERSION)

.PHONY: build test race lint fmt fuzz ci clean

build: ## Build the commands into bin/, static and reproducible.
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

test: ## Run the tests.
	go test ./...

race: ## Run the tests under the race detector.
	go test -race ./...

lint: ## Run the linters.
	.ci/run vet lint

fmt: ## Format the sources.
	gofmt -w $$(git ls-files '*.go')

fuzz: ## Run every fuzz target for half a minute.
	FUZZ_SECONDS=30 .ci/run fuzz

ci: ## Run everything a change must pass.
	.ci/run

clean: ## Remove what was built.
	rm -rf bin

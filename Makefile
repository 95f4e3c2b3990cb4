# The version that every command prints with --version: the last tag, and how far from it.
VERSION ?= $(patsubst v%,%,$(shell git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null || echo v0.0.0-dev))
LDFLAGS := -s -w -X github.com/afterwrite/afterwrite/internal/version.stamped=$(VERSION)

# Where images are tagged for, and what builds them.
REGISTRY ?= ghcr.io/afterwrite
DOCKER ?= docker

.PHONY: build images scratch test race kubetest lint fmt fuzz ci clean

build: ## Build the commands into bin/, static and reproducible.
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

images: ## Build the images, one a command.
	set -e; for command in $(notdir $(wildcard cmd/*)); do \
		$(DOCKER) build --file deploy/Dockerfile --target $$command --tag $(REGISTRY)/$$command:$(VERSION) \
			--build-arg VERSION=$(VERSION) --build-arg SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) .; \
	done

scratch: ## Run the programs as their images do, without building images. Needs root.
	deploy/scratch.sh

test: ## Run the tests.
	go test ./...

race: ## Run the tests under the race detector.
	go test -race ./...

kubetest: ## Install the chart into a real Kubernetes API server, which is built the first time.
	cd deploy/helm/kubetest && go test -v -timeout 1h

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

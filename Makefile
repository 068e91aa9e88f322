.PHONY: help build test race lint fmt fuzz bench image verify

LINT_VERSION := v2.15.0
FUZZTIME := 30s

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

build: ## build bin/agentos, static
	CGO_ENABLED=0 go build -trimpath -o bin/agentos ./cmd/agentos

test: ## run all tests
	go test ./...

race: ## run all tests with the race detector, in random order
	go test -race -shuffle=on -count=1 ./...

lint: ## run the linters (the first run builds them)
	go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION) run ./...

fmt: ## format the code
	go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION) fmt ./...

fuzz: ## run every fuzz target for FUZZTIME
	scripts/fuzz.sh $(FUZZTIME)

bench: ## run the Go benchmarks once each
	go test -run '^$$' -bench . -benchtime 1x ./...

image: ## build the container image
	docker build -t agentos .

verify: ## check that go.mod is tidy
	go mod tidy -diff

# Everything a developer or CI runs. Tools come with the module (go tool ...); only the spec lint needs node and npm.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  ?= $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)
LDFLAGS  = -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

# The packages whose concurrency matters most; `make race` takes them all.
CORE = ./record/... ./storage/... ./server/... ./client/... ./consumer/... ./schemaregistry ./schemaregistry/serde ./connect/store ./connect/task \
	./api ./api/connectors ./api/native ./api/rawjson ./api/registry ./api/restv2 ./api/restv3

.PHONY: run build test test-clients race race-core sim generate notice lint lint-spec fuzz bench load faults clean

run: build
	./bin/millrace serve

build:
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/millrace ./cmd/millrace

# All tests: unit, crash at every file operation, simulated schedules, fuzz seeds, the contract, the README's tour, the
# built binary. Some of the schedules run again under the race detector, where there is a C compiler for it.
test:
	@.ci/postgres
	go test -timeout 15m ./...
	@if [ "$$(go env CGO_ENABLED)" = 1 ] && command -v "$$(go env CC)" >/dev/null; then \
	  set -x; go test -race -timeout 10m -run '^Test(Exact|Registry)?Simulation$$' ./server/servertest/simtest; \
	else \
	  echo "no C compiler: the schedules under the race detector are left out"; \
	fi

# Clients of others against the contract and the built binary: TypeScript, JavaScript and Python. What needs npm or Python,
# or a registry of packages, is left out where there is none.
test-clients:
	.ci/test-clients

race:
	go test -race -timeout 30m ./...

# The simulated schedules have their race run in `make test`.
race-core:
	go test -race -short -timeout 10m $$(go list $(CORE) | grep -v /simtest)

# Simulated schedules of a whole cluster: `make sim SEEDS=20000` is a night's run. Prints how to run a failure again.
SEEDS ?= 1000
SEED0 ?= 1
sim:
	SEEDS=$(SEEDS) SEED0=$(SEED0) .ci/sim

generate:
	go generate ./...

# NOTICE lists what the binary links, from the module list.
notice:
	go test ./internal/tidy -run TestNoticeIsCurrent -update

# The style guide's rules are tests in internal/tidy.
lint: lint-spec
	go vet ./...
	go tool staticcheck ./...
	go test -count 1 ./internal/tidy

lint-spec:
	.ci/spec-lint

# Every fuzz target in turn.
FUZZTIME ?= 30s
fuzz:
	@set -e; grep -rlE '^func Fuzz' --include='*_test.go' . | sort | while read -r file; do \
	  for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$$file"); do \
	    go test "$$(dirname "$$file")" -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME); \
	  done; \
	done

BENCH ?= .
bench:
	go test -run '^$$' -bench '$(BENCH)' -benchmem ./...

# Drives the built binary against the reference load harness; see internal/load and docs/performance.md.
HARNESS ?= ../shared/bench-harness
load: build
	go run ./internal/load -harness '$(HARNESS)' -binary bin/millrace $(LOADFLAGS)

# Three built processes under load: each kind of fault for a minute, a million records copied exactly once meanwhile, and
# members of a group that come and go; connectors between databases that are killed and cut, with more of each. A bit of all
# is part of `make test`. As root on Linux nodes are also cut off and out of disk. FAULTFLAGS=-faults.only=cut,disk does some
# kinds, -faults.seed=N the same again.
FAULTTIME ?= 60s
FAULTRECORDS ?= 1000000
CONNECTFAULTS ?= -faults.roundtrip 3m -faults.kills 50 -faults.handovers 24
faults:
	go test -count 1 -timeout 60m -v ./internal/faults -faults.time $(FAULTTIME) -faults.records $(FAULTRECORDS) \
	  $(CONNECTFAULTS) $(FAULTFLAGS)

clean:
	rm -rf bin

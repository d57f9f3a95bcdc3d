# weir: make help lists the common targets (##), make help-all lists all (also ##-).
GO ?= go
# As in a release. The race detector needs a C compiler.
export CGO_ENABLED ?= 0
# go.work is for editors and for one test by hand: each module is built and tested with its own versions.
export GOWORK = off
# Without gRPC's trace pages, which nothing serves, the linker drops methods that nothing calls: a
# third of edge. With the edge's profile for all: go itself would use it for edge only, and compile
# what edge shares with other programs twice. Exported, so tests and lint build the same packages only once.
export GOFLAGS := $(strip $(GOFLAGS) -tags=grpcnotrace '-pgo=$(CURDIR)/cmd/edge/default.pgo')

.DEFAULT_GOAL := help
.PHONY: help help-all run build docs reference unit test test-nodes test-worlds test-rest test-browser test-lab test-computing check check-waiting check-computing lint vuln bench overload overload-fast profile soak soak-tests soak-nodes soak-proof soak-chart soak-tofu fuzz drills steering behavior tables k6 release release-test release-compiled loadtest loadtest-full lab lab-down lab-status console picture release-aws terraform-schema tools deps deps-bench deps-lab deps-overload deps-soak clean distclean

help: ## list the common targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | expand -t 14

help-all: ## list all targets
	@grep -hE '^[a-z0-9-]+:.*##-? ' $(MAKEFILE_LIST) | sed -E 's/:.*##-? /\t/' | sort | expand -t 18

run: PROGRAMS = ./cmd/edge
run: build ## try it: memory store, built-in origin, sample rules on 127.0.0.1:8080
	@exec bin/edge -dev

PROGRAMS = ./cmd/...

# The first time takes a minute or more, so a line every 4 s says how far it is. What go prints is kept, since most of it names packages.
build: ## build the programs into bin/
	@mkdir -p bin; : >bin/build.log; \
	while sleep 4 >/dev/null 2>&1 && kill -0 $$$$ 2>/dev/null; do echo "compiling: $$(wc -l <bin/build.log) packages so far; $$(tail -n 1 bin/build.log)"; done & progress=$$!; \
	$(GO) build -v -o bin/ $(PROGRAMS) 2>bin/build.log || { status=$$?; kill $$progress; grep -v '^[^ :#]*$$' bin/build.log >&2; exit $$status; }; \
	kill $$progress

unit: ## run the tests that start no server or other program and take seconds
	@cd tools && $(GO) run ./unit
	@cd middleware && $(TEST) -skip Redis ./...

# These drive other processes or read files: the race detector would watch only the test
# itself and slow down its load.
PLAIN = $(filter %/internal/testenv %/internal/house %/internal/spillsim %/internal/behaviorsim %/internal/console/browser %/dashboards,$(PACKAGES))
# Of these, two mostly wait, so they run beside the browser.
WAITING = $(filter %/internal/testenv %/dashboards,$(PACKAGES))
# The longest begin first, some that mostly wait beside some that compute.
PACKAGES = $(shell $(GO) list ./internal/ctl ./internal/manual ./internal/router ./internal/console ./...)
GUARANTEES = $(shell $(GO) list ./internal/edge ./pkg/limiter/redisstore ./internal/edge/exchange ./internal/edge/decide ./internal/edge/proxy ./cmd/edge ./lua ./pkg/... ./internal/edge/... ./internal/clientlist ./internal/policy ./internal/shedding)
ALLOC = $(sort $(dir $(shell grep -rlE '^func Test\w*Alloc' --include='*_test.go' internal pkg)))

# Two targets at once, also below a make with more jobs.
BOTH = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j2)
# make lint vets all modules.
TEST = $(GO) test -vet=off
RACE = GO="$(GO)" $(CURDIR)/tools/race.sh

test: ## prove the guarantees, with real servers: limits, shedding, nodes while their parts fail
	@echo "1 of 3: installing the programs that tests start, and compiling as users do and with the race detector"
	@$(MAKE) --no-print-directory $(BOTH) deps tools
	@$(MAKE) --no-print-directory build
	CGO_ENABLED=1 $(GO) build -race ./cmd/...
	@echo "2 of 3: packages, with the race detector; most wait for servers, so four at a time"
	$(RACE) -p 4 -timeout 45m $(GUARANTEES)
	@echo "3 of 3: nodes as processes; bounds of allocations; the worlds of leases, regions and experiments"
	@$(MAKE) --no-print-directory $(BOTH) test-nodes test-worlds
	@echo "passed; make check tests the rest: regionctl, console, lab, dashboards, Terraform, tools"

# Sequential, but for those that mostly wait: tests that wait for servers or a browser fail while race tests use all CPUs.
test-rest:
	$(RACE) -timeout 45m $(filter-out $(PLAIN) $(GUARANTEES) %/internal/experiment,$(PACKAGES))
	cd middleware && $(RACE) -timeout 45m ./...
	@$(MAKE) --no-print-directory $(BOTH) test-browser test-lab
	cd middleware && $(TEST) -count 1 -run Alloc ./...
	cd tools && $(TEST) -count 1 ./manifests && $(RACE) ./bench ./overload ./tables
	cd loadtest/xk6-weir && $(TEST) -timeout 10m . && $(RACE) ./keys ./oracle ./ratelimit ./resolve
	@echo "a separate lab under load: the oracle finds no violation, and does find the rule that limits nothing; regions never exceed a limit in escrow"
	TF_VAR_network=127.254 $(MAKE) --no-print-directory loadtest LAB_DIR="$(CURDIR)/.lab-test" LAB_VARS= LOADTEST="-only steady,shadow,global-escrow -out bin/loadtest-test"

# These wait for nothing.
test-computing:
	$(TEST) -p 1 -timeout 45m $(filter-out $(WAITING) %/internal/console/browser,$(PLAIN))
	cd tools && $(TEST) ./internal/... && $(RACE) ./import/... ./unit
	cd loadtest/xk6-weir/proof && $(TEST) ./...

test-nodes:
	cd internal/e2e && $(TEST) -timeout 45m .

# The race detector distorts allocations and makes most worlds too slow; experiments are simulated in one goroutine.
test-worlds:
	$(TEST) -p 1 -count 1 -run Alloc $(addprefix ./,$(ALLOC))
	$(TEST) -p 1 -count 1 ./pkg/limiter/lease ./internal/edge/exchange ./internal/experiment

test-browser:
	$(TEST) -timeout 45m ./internal/console/browser

# Twelve regions are 133 processes, more than two cores start beside other tests: make soak-tofu.
test-lab:
	cd terraform && $(TEST) -p 1 -timeout 45m -skip TwelveRegions ./...
	$(TEST) -p 1 -timeout 45m $(WAITING)

check: docs ## lint, run every test, build; CI runs this and make release-test
	@$(MAKE) --no-print-directory -j3 check-waiting check-computing

# Most tests wait half of the time: what only computes takes the rest, at the lowest priority.
check-waiting:
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test-rest

COMPUTING = lint test-computing
check-computing:
	@for target in $(COMPUTING); do nice -n 19 $(MAKE) --no-print-directory $$target || exit 1; done

# The version that the site describes: the commit's tag, or the commit. Links lead to the repository at it.
SITE = $(or $(VERSION),$(shell git describe --tags --exact-match 2>/dev/null || git rev-parse --short=12 HEAD))

docs: ##- check docs/reference, build the documentation as a site into dist/site/VERSION, check its links
	cd tools && $(TEST) ./reference ./site
	@tools/install.sh mkdocs
	@out=$$(VERSION="$(SITE)" mkdocs build --strict --clean --config-file tools/site/mkdocs.yml --site-dir "$(CURDIR)/dist/site/$(SITE)" 2>&1) || { echo "$$out" >&2; exit 1; }
	@cd tools && $(GO) run ./site ../dist/site/$(SITE)

reference: ##- write docs/reference from commands, types, rules, metrics, alerts and packages, runbooks' first lines, and the chart's rules
	cd tools && $(GO) run ./reference

RELEASE ?= -out "$(CURDIR)/dist"

# VERSION is the version that CHANGELOG.md begins with; without it, the downloads are named after the commit. KEY is an SSH key.
release: ## build the downloads into dist/: VERSION=v0.1.0 for a release, KEY=FILE to sign it
	@tools/install.sh dpkg-deb ssh-keygen
	cd tools && $(GO) run -trimpath ./release -root .. $(if $(VERSION),-version $(VERSION)) $(if $(KEY),-key "$(abspath $(KEY))") $(RELEASE)

release-test: .bin/consul ##- as root, build a release twice, verify it, install it as README says, upgrade under load, remove
	@tools/install.sh dpkg-deb ssh-keygen curl debootstrap jq
	cd tools && $(if $(filter 0,$(shell id -u)),,sudo -E env "PATH=$$PATH") $(GO) test -trimpath -count 1 -timeout 30m ./release

# All that release-test compiles, also of a tree that no release is built from.
release-compiled:
	cd tools && $(GO) test -trimpath -run '^$$' ./release
	for arch in amd64 arm64; do GOARCH=$$arch $(GO) build -trimpath -o /dev/null ./cmd/... && GOARCH=$$arch $(GO) build -C tools -trimpath -o /dev/null ./import || exit 1; done
	GOOS=darwin GOARCH=arm64 $(GO) build -trimpath -o /dev/null ./cmd/regionctl

# ARCH is the architecture of the instances.
ARCH ?= amd64
AWS_RELEASE = dist/aws-linux-$(ARCH).tar.gz

# The programs are those of the release in dist/; if there is none, it builds one of the commit.
release-aws: ##- pack what the instances of terraform/aws run into dist/: edge and regionctl of the release, and Consul; ARCH=arm64
	@test -e dist/SHA256SUMS || $(MAKE) --no-print-directory release
	@cd dist && sha256sum --quiet -c --ignore-missing SHA256SUMS
	@mkdir -p "bin/aws-$(ARCH)"
	@tar -xzf dist/weir_*_linux_$(ARCH).tar.gz -C "bin/aws-$(ARCH)" --strip-components 1 --wildcards '*/edge' '*/regionctl'
	@GO="$(GO)" GOOS=linux GOARCH=$(ARCH) tools/consul/build.sh "$(CURDIR)/bin/aws-$(ARCH)/consul"
	@tar -czf "$(AWS_RELEASE)" -C "bin/aws-$(ARCH)" edge regionctl consul
	@sha256sum "$(AWS_RELEASE)"

LINT = $(GO) tool -modfile $(CURDIR)/tools/lint/go.mod
MODULES = . internal/e2e middleware terraform tools tools/issuer loadtest/xk6-weir loadtest/xk6-weir/proof

lint: ## check formatting, run go vet and staticcheck
	@echo "gofmt"; out=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$out" || { echo "run gofmt -w on:"; echo "$$out"; exit 1; }
	@for module in $(MODULES); do echo "$$module: go vet, staticcheck"; (cd $$module && $(GO) vet ./... && $(LINT) staticcheck ./...) || exit 1; done

# The database of vulnerabilities: a URL, also of a copy (file:///...).
VULNDB ?= https://vuln.go.dev

# govulncheck exits with 3 if it finds any.
vuln: ## list known vulnerabilities that the code reaches; downloads the database
	@$(LINT) govulncheck -db "$(VULNDB)" ./... || { status=$$?; test $$status = 3 || echo "make vuln needs the vulnerability database at $(VULNDB): allow access to it, or name a copy: make vuln VULNDB=file:///path" >&2; exit $$status; }

# Every step runs, even after a failed one: together they take hours.
soak: deps-soak tools ## run the long forms of the tests: many seeds, 20 exactness runs, 1 million framed exchanges, fuzzing
	@failed=; for step in soak-tests soak-nodes soak-proof soak-chart soak-tofu fuzz; do $(MAKE) --no-print-directory $$step || failed="$$failed $$step"; done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

soak-tests:
	WEIR_SOAK=1 $(GO) test -timeout 60m -bench . -benchtime 1x ./pkg/... ./internal/...

soak-nodes:
	cd internal/e2e && WEIR_SOAK=1 $(GO) test -timeout 60m .

soak-proof:
	cd loadtest/xk6-weir/proof && $(GO) test -run Never ./... -rapid.checks=60000

soak-chart: .bin/kube-apiserver .bin/etcd
	cd tools && WEIR_SOAK=1 $(GO) test -count 1 -run APIServer ./manifests

soak-tofu: .bin/consul .bin/tofu
	cd terraform && TERRAFORM="$(CURDIR)/.bin/tofu" $(GO) test -count 1 -p 1 -timeout 60m ./...

# How long to fuzz each parser, and with how many processes. The long form is make fuzz FUZZTIME=10m.
FUZZTIME ?= 20s
FUZZPROCS ?= $(shell nproc)
FUZZ ?= $(shell grep -rE '^func Fuzz' --include='*_test.go' internal pkg | sed -E 's|/[^/]*:func |:|; s|\W*f [*].*||; s|^|./|' | sort)

# A failure runs again, because reaching the end of FUZZTIME may count as one (context deadline exceeded); a failing input is kept and fails again.
fuzz: ##- fuzz every parser of untrusted input for FUZZTIME each; FUZZ=./pkg/paths:FuzzReadings for one
	@failed=; for one in $(FUZZ); do echo "$$one"; run="$(GO) test -run ^$$ -fuzz ^$${one##*:}$$ -fuzztime $(FUZZTIME) -fuzzminimizetime 1s -parallel $(FUZZPROCS) $${one%:*}"; $$run || $$run || failed="$$failed $$one"; done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

drills: deps tools ##- break each part under load, and write docs/DRILLS.md
	cd internal/e2e && WEIR_DRILLS=../../docs/DRILLS.md $(GO) test -count 1 -timeout 30m -run TestDrills .

bench: deps-bench build ## compare with bare fasthttp, nginx and redis_rate, and write the tables of docs/BENCHMARKS.md; about 25 minutes, and 20 for latency
	cd tools && $(GO) build -o ../bin/bench ./bench
	bin/bench -doc docs/BENCHMARKS.md
	$(GO) test -run '^$$' -bench . -benchmem ./pkg/limiter/rules

overload: deps-overload build ##- compare the load shedder with none, caps and the published law; 75 minutes, or a part: ONLY=weir,2x PARALLEL=2
	cd tools && $(GO) build -o ../bin/overload ./overload
	bin/overload -results docs/overload.json -svg docs/overload.svg -doc docs/OVERLOAD.md -only "$(ONLY)" -parallel $(or $(PARALLEL),1)

overload-fast: deps-overload build ##- run make overload for weir's law only, with steps of 20 s; about 7 minutes
	cd tools && $(GO) build -o ../bin/overload ./overload
	bin/overload -short -only weir

profile: deps-bench build ##- profile the edge under load, for profile-guided builds; 4 minutes
	cd tools && $(GO) build -o ../bin/bench ./bench
	rm -rf bin/profiles
	for part in refuse shed proxy leased http2; do bin/bench -only $$part -rounds 3 -duration 4s -profiles bin/profiles || exit 1; done
	$(GO) tool pprof -proto bin/profiles/*.pprof >cmd/edge/default.pgo

# SEEDS is the number of seeds that the routers' law is judged over.
SEEDS ?= 10

steering: ##- simulate overloaded PoPs, the routers and the resolvers in virtual time, and write the tables of docs/STEERING.md; about 5 minutes
	$(GO) test -count 1 -timeout 60m -run 'TestSpill$$' -v ./internal/spillsim -seeds $(SEEDS) -update

behavior: ##- simulate benign and hostile clients in virtual time, and write the tables of docs/CORPUS.md; about 5 minutes
	$(GO) test -count 1 -timeout 60m -run TestCorpus -v ./internal/behaviorsim -update

tables: deps ##- measure algorithms, and Redis nodes for 400,000 decisions per second; about 45 minutes
	$(GO) test -count 1 -run TestMemoryTable -v ./pkg/limiter/redisstore
	cd tools && $(GO) build -o ../bin/tables ./tables
	bin/tables -doc docs/TABLES.md
	cd tools && $(GO) test -count 1 -timeout 120m -run TestNodes -v ./tables -args -full -doc ../../docs/TABLES.md

k6: ##- build k6 with the extension that checks limits; about 2 minutes the first time
	cd loadtest/xk6-weir && $(GO) build -o ../../bin/k6 ./cmd/k6

# LOADTEST holds the runner's options, such as -only steady,shadow.
LOADTEST ?=

loadtest: deps-lab tools build k6 ##- load the lab in three regions, with faults, and prove its limits; about 7 minutes
	@$(GO) build -C terraform -o ../bin/ ./lab/origin ./lab/distance
	@$(GO) build -o bin/loadtest-run ./loadtest/run
	@LAB="$(LAB_DIR)" TERRAFORM="$(TERRAFORM)" bin/loadtest-run $(if $(LAB_VARS),-vars $(LAB_VARS)) $(LOADTEST)

loadtest-full: ##- run make loadtest with longer phases; about an hour
	@$(MAKE) --no-print-directory loadtest LOADTEST="-full $(LOADTEST)"

# The lab runs on terraform, or on OpenTofu if terraform is missing.
TERRAFORM ?= $(shell command -v terraform || echo "$(CURDIR)/.bin/tofu")
LAB_DIR ?= $(CURDIR)/.lab
# A file of variables for the lab, such as terraform/lab/small.tfvars.
LAB_VARS ?=

lab: deps-lab tools build ## start three regions on this machine with Terraform; run again to repair; LAB_VARS=FILE to change
	@$(GO) build -C terraform -o ../bin/ ./lab/origin ./lab/distance
	@LAB="$(LAB_DIR)" TERRAFORM="$(TERRAFORM)" terraform/lab/scripts/up.sh $(LAB_VARS)

lab-status: ##- show the lab's processes and their memory
	@LAB="$(LAB_DIR)" terraform/lab/scripts/status.sh

lab-down: ## stop the lab and remove its files, even after failures
	@LAB="$(LAB_DIR)" terraform/lab/scripts/down.sh

console: deps-lab tools build ## run the lab with traffic, and the console to watch and change it; Ctrl-C stops everything
	@$(GO) build -C terraform -o ../bin/ ./lab/origin ./lab/distance ./lab/visitors
	@LAB="$(LAB_DIR)" TERRAFORM="$(TERRAFORM)" terraform/lab/scripts/console.sh $(LAB_VARS)

picture: deps tools ##- film the console during an overload into docs/overload.gif; about 2 minutes, on a machine with nothing else to do
	WEIR_SCREENSHOTS="$(CURDIR)/docs" $(GO) test -count 1 -run 'TestOverload$$' ./internal/console/browser

terraform-schema: ##- update terraform/testdata with the AWS provider's schema from npm, 37 MB; after adding a resource type
	rm -rf bin/schema && mkdir -p bin/schema
	cd bin/schema && npm pack --silent @cdktf/provider-aws@21.22.1 && tar -xzf *.tgz
	cd terraform && $(GO) test . -run TestProviderSchema -provider $(CURDIR)/bin/schema/package

tools: .bin/consul $(if $(shell command -v terraform),,.bin/tofu) ##- build the servers that tests start into .bin/: Consul, and OpenTofu if terraform is missing

.bin/consul: tools/consul/go.mod tools/consul/go.sum tools/consul/build.sh
	@GO="$(GO)" tools/consul/build.sh "$(CURDIR)/$@"

.bin/tofu: tools/tofu/go.mod tools/tofu/go.sum tools/tofu/build.sh
	@GO="$(GO)" tools/tofu/build.sh "$(CURDIR)/$@"

# PROGRAM is the package of each.
.bin/kube-apiserver: PROGRAM = k8s.io/kubernetes/cmd/kube-apiserver
.bin/etcd: PROGRAM = go.etcd.io/etcd/server/v3
.bin/kube-apiserver .bin/etcd: tools/apiserver/go.mod tools/apiserver/go.sum
	@echo "building $@ (several minutes the first time)"
	@cd tools/apiserver && $(GO) build -trimpath -ldflags "-s -w" -o "$(CURDIR)/$@" $(PROGRAM)

deps: ##- install missing programs that the tests start: Redis, Prometheus, dig, curl, Chromium, nginx, HAProxy, Caddy, Node, Python, BusyBox
	@tools/install.sh redis-server redis-sentinel dig prometheus prometheus-redis-exporter curl openssl chromium gcc nginx haproxy caddy node python3 busybox

deps-bench: ##- install the programs that make bench compares with
	@tools/install.sh redis-server redis-sentinel nginx caddy haproxy wrk h2load

# Empty if the lab's Prometheus is off.
LAB_PROMETHEUS = $(shell [ "$$TF_VAR_prometheus" = false ] || { [ -n "$(LAB_VARS)" ] && grep -Eq '^ *prometheus *= *false' "$(LAB_VARS)"; } || echo prometheus prometheus-redis-exporter)

deps-soak: deps
	@tools/install.sh java tomcat

deps-lab:
	@tools/install.sh redis-server curl openssl $(LAB_PROMETHEUS)

deps-overload:
	@tools/install.sh wrk

clean: ##- remove build output except .bin/, which takes minutes to build
	rm -rf bin

distclean: clean ##- remove .bin/ too
	rm -rf .bin

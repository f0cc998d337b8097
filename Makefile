# Touchline. `make` lists what there is to make.

# hraban/opus would otherwise want libopusfile as well. A -tags on a command line replaces these, so it repeats them.
TAGS := nolibopusfile,builtinassets
comma := ,
export GOFLAGS := -tags=$(TAGS) -trimpath
export CGO_ENABLED := 1

WEB     := agent/console/web
WEB_SRC := $(shell find $(WEB) -path $(WEB)/node_modules -prune -o -path $(WEB)/dist -prune -o -type f -print 2>/dev/null)
# With the embedded files: settings, words, nano, Korean words.
GO_SRC  := $(shell find . \( -name '*.go' -o -name '*.[ch]' \) -not -path '*/node_modules/*' -not -path './bin/*') $(shell find configs models/nano/checkpoint -type f ! -name '*.go') \
	$(wildcard worlds/claims/words/* worlds/train/words/*.txt inference/qwen3asr/*.gz)
LINT_VERSION := v2.15.0

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18

.PHONY: demo
demo: build demo-runtime sight ## a live commentary at http://127.0.0.1:8199, with nothing to set up
	./bin/touchline demo $(ARGS)

# Without ONNX Runtime the demo goes on with the scene engine, which needs no model.
.PHONY: demo-runtime
demo-runtime:
	@{ scripts/setup.sh runtime && scripts/runtime.sh cpu bin/runtime; } || echo "demo: no ONNX Runtime, so nano cannot run" >&2

.PHONY: sight
sight: bin/touchline-model ## the networks of the engine sight, into bin/sight
	@scripts/sight.sh bin/touchline-model bin/sight

# The photos, the clip and the fonts come with apt-get, pip and npm, by their sums; the boards are drawn once.
.PHONY: sight-test
sight-test: setup-test sight ## how right sight is: photos, a clip and drawn boards, with figures (3 minutes)
	@[ -e bin/sight/sight.json ] || { echo "sight-test: no networks in bin/sight: make sight" >&2; exit 1; }
	python3 inference/sight/testdata/photos.py bin/photos
	@[ -e bin/boards/boards.json ] || { \
		python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --only-binary=:all: --no-deps --require-hashes \
			--target bin/pillow -r scripts/pillow.txt && python3 inference/sight/testdata/photos.py bin/fonts fonts && \
		PYTHONPATH=bin/pillow python3 inference/sight/testdata/boards.py bin/boards bin/fonts bin/photos/opencv-doc; }
	go test -vet=off -count=1 -v -run '^(TestPeopleOnClip|TestPhotos|TestDrawnBoards|TestBoardOnClip)$$' ./inference/sight

.PHONY: build
build: setup bin/touchline bin/touchline-codec bin/touchline-model ## the programs, in ./bin

.PHONY: setup
setup:
	@scripts/setup.sh build

.PHONY: setup-test
setup-test:
	@scripts/setup.sh test
	@scripts/runtime.sh cpu bin/runtime
	@scripts/runtime.sh nvrtc bin/nvrtc || echo "setup-test: no NVRTC: the test that compiles the CUDA kernels is left out" >&2
	@scripts/mediamtx.sh bin/mediamtx

.PHONY: runtime
runtime: ## ONNX Runtime for the CPU, into bin/runtime
	@scripts/setup.sh runtime
	@scripts/runtime.sh cpu bin/runtime

.PHONY: runtime-cuda
runtime-cuda: ## ONNX Runtime for CUDA 13, with NVIDIA's libraries where the system lacks them
	@scripts/setup.sh runtime
	@scripts/runtime.sh cuda bin/runtime

.PHONY: web
web: $(WEB)/dist/index.html ## the viewer page

$(WEB)/dist/index.html: $(WEB_SRC)
	cd $(WEB) && npm ci --no-audit --no-fund --silent && npm run --silent build
	@touch $@

# A page of LiveKit's own components, for the test that they understand the bot.
STOCK := internal/e2e/stockfront/web

.PHONY: stock-front
stock-front: $(STOCK)/dist/main.js

$(STOCK)/dist/main.js: $(STOCK)/package.json $(STOCK)/package-lock.json $(wildcard $(STOCK)/src/*)
	cd $(STOCK) && npm ci --no-audit --no-fund --silent && npm run --silent build
	@touch $@

# A program of ours, copied after it was linked: Go's linker writes through a mapping, and the kernel may keep such a
# file in large pieces, each of which counts in full as memory of the process that touches a byte of it. Of a copy,
# and of a file read from disk, small pieces are mapped: 16 to 30 MB less for touchline.
program = go build $(2) -o $@.linked $(1) && cp $@.linked $@.new && mv $@.new $@ && rm $@.linked

bin/touchline: $(GO_SRC) go.mod go.sum $(WEB)/dist/index.html
	$(call program,./cmd/touchline)

bin/touchline-codec: $(GO_SRC)
	$(call program,./cmd/touchline-codec)

bin/touchline-model: $(GO_SRC) go.mod go.sum
	go build -o $@ ./cmd/touchline-model

.PHONY: nano
nano: ## train the small model anew, on a machine with an NVIDIA GPU and PyTorch (25 minutes)
	@scripts/nano.sh $(ARGS)

.PHONY: nano-golden
nano-golden: ## record the answers of nano that `models check` compares, after every training; needs PyTorch (PYTHON, default python3)
	$(or $(PYTHON),python3) worlds/train/golden.py

.PHONY: nano-awq
nano-awq: ## nano as an AWQ checkpoint in bin/nano-awq, for truth; needs PyTorch
	rm -rf bin/nano-awq
	$(or $(PYTHON),python3) worlds/train/awq.py bin/nano-awq

.PHONY: models
models: bin/touchline-model ## the model commands alone, for a machine with a GPU and little else

# MODEL_DIR keeps the bundles for the next time; ARGS go to the bench.
.PHONY: bench-gpu
bench-gpu: runtime-cuda bin/touchline-model ## the model's timing on an NVIDIA GPU, with random weights of the real shape
	@scripts/bench-gpu.sh $(ARGS)

# Without the LiveKit server: half the size and memory, no demo.
bin/touchline-slim: bin/touchline
	$(call program,./cmd/touchline,-tags=$(TAGS)$(comma)nodemo)

.PHONY: check
check: lint test-web ## what to run before each commit: vet, linter, page tests, Go tests without a server (2 minutes)
	go vet -tags=$(TAGS),integration ./...
	go test -vet=off ./...

.PHONY: test
test: setup-test build bin/touchline-slim sight test-web stock-front ## all tests: race detector, LiveKit server, browsers (16 minutes on two cores)
	go vet -tags=$(TAGS),integration ./...
	@scripts/test.sh

.PHONY: test-race
test-race: setup-test build bin/touchline-slim sight stock-front ## the integration tests under the race detector, as the nightly job does
	@scripts/test.sh race

.PHONY: reverts
reverts: setup-test build ## show that each regression test of a security fix fails without the fix; ARGS="N1 N2"
	@scripts/reverts.py $(ARGS)

.PHONY: test-web
test-web: web
	cd $(WEB) && npm test --silent

.PHONY: bench
bench: setup-test build sight bin/touchline-slim bin/touchline-bench ## every timing figure, in a table (about an hour)
	./bin/touchline-bench run $(ARGS)

.PHONY: soak
soak: setup-test build bin/touchline-bench ## long runs (an hour unless ARGS, DAYS, ROUNDS, UTTERANCES and SESSIONS say otherwise)
	./bin/touchline-bench soak $(ARGS)
	TOUCHLINE_DAYS=$(or $(DAYS),8) go test -vet=off -tags=$(TAGS),integration -count=1 -v -run '^(TestBoundaries|TestWeeks)$$' ./agent
	TOUCHLINE_ROUNDS=$(or $(ROUNDS),10000) go test -vet=off -tags=$(TAGS),integration -count=1 -timeout 1h -v \
		-run '^TestRounds$$' ./media/source/whip
	TOUCHLINE_UTTERANCES=$(or $(UTTERANCES),10000) go test -vet=off -tags=$(TAGS),integration -count=1 -timeout 4h -v \
		-run '^TestManyUtterances$$' ./inference/minicpmo
	TOUCHLINE_SESSIONS=$(or $(SESSIONS),10000) TOUCHLINE_SESSIONS_TIME=10m go test -vet=off -tags=$(TAGS),integration -count=1 -v \
		-timeout 30m -run '^TestManySessions$$' ./agent/audioapi

PRECISIONS ?= fp32 int4
.PHONY: nano-precisions
nano-precisions: bin/touchline-bench $(if $(filter awq,$(PRECISIONS)),nano-awq) ## nano in several PRECISIONS (fp32 int4 awq; with ARGS="--device cuda", fp16 int4 awq), judged by truth
	for p in $(PRECISIONS); do \
		case $$p in awq) how="--engine minicpmo --model bin/nano-awq --device cpu --precision int4" ;; *) how="--precision $$p" ;; esac; \
		./bin/touchline-bench truth $$how --json bin/nano-$$p.json $(ARGS) || exit 1; \
	done

bin/touchline-bench: $(GO_SRC) go.mod go.sum $(WEB)/dist/index.html
	go build -o $@ ./cmd/touchline-bench

.PHONY: fuzz
fuzz: setup-test web ## each fuzz target for TIME (20s), some for a fifth of it; SHARD=1/4 is a part; an interrupted run continues
	@scripts/fuzz.sh "$(or $(TIME),20s)" "$(or $(SHARD),1/1)"

.PHONY: lint
lint: setup web bin/golangci-lint ## golangci-lint, with the import ladder, and go mod tidy
	go mod tidy -diff
	./bin/golangci-lint run ./...

bin/golangci-lint:
	GOBIN=$(CURDIR)/bin GOFLAGS= go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)

.PHONY: vuln
vuln: ## known vulnerabilities of the Go modules; without a database scripts/vuln.sh exits with 3 (DATABASE: another than Go's)
	@scripts/vuln.sh $(DATABASE)

.PHONY: sbom
sbom: build ## bills of materials of the programs and the page, as CycloneDX, in bin/sbom
	@scripts/sbom.sh

.PHONY: deploy-check
deploy-check: setup web ## deploy/ against helm, promtool, hadolint and published schemas
	@scripts/deploy-check.sh

.PHONY: screenshot
screenshot: setup-test build ## docs/page.png, taken from the demo's page
	@scripts/screenshot.sh

.PHONY: images-check
images-check: ## build the images on base images made here, and run the worker's once (root, Debian 12)
	@scripts/images-check.sh $(ARGS)

.PHONY: release
release: setup web ## archives of the programs with checksums, in ./dist
	@scripts/release.sh

.PHONY: fmt
fmt: bin/golangci-lint ## format the Go code
	./bin/golangci-lint fmt ./...

.PHONY: clean
clean: ## remove what was built
	rm -rf bin $(WEB)/dist $(WEB)/node_modules $(STOCK)/dist $(STOCK)/node_modules

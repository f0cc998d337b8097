#!/bin/sh
# Takes the README's screenshot of the page: headless Chromium against `touchline demo`.
# usage: scripts/screenshot.sh [DEST]   (docs/page.png without)
#   CHROMIUM  the browser; chromium without
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
dest=${1:-$here/docs/page.png}
listen=127.0.0.1:8198

"$here/bin/touchline" demo --listen "$listen" >/dev/null 2>&1 &
demo=$!
trap 'kill -INT $demo 2>/dev/null; wait $demo || true' EXIT INT TERM

until curl -sf -o /dev/null "http://$listen/readyz"; do
	kill -0 $demo 2>/dev/null || { echo "screenshot: the demo ended; run \`bin/touchline demo --listen $listen\` to see why" >&2; exit 1; }
	sleep 0.5
done
work=$(mktemp -d)
trap 'rm -rf "$work"; kill -INT $demo 2>/dev/null; wait $demo || true' EXIT INT TERM
node "$here/scripts/screenshot.mjs" "http://$listen/" "$work/page.png" 1280 800
# 256 colours: a quarter of the size.
ffmpeg -v error -y -i "$work/page.png" -vf 'split[a][b];[a]palettegen=stats_mode=full[p];[b][p]paletteuse=dither=none' "$dest"
echo "screenshot: $dest, $(wc -c <"$dest") bytes"

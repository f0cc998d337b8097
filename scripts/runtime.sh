#!/bin/sh
# Downloads ONNX Runtime, and the Silero network that finds speech, to a folder, with Python's pip.
# usage: scripts/runtime.sh cpu|cuda|nvrtc DEST
#   cpu   ONNX Runtime for the CPU; keeps an existing CUDA one, which supports both
#   cuda  ONNX Runtime for CUDA 13, and the NVIDIA libraries that the system lacks (RUNTIME_NVIDIA=1: all of them)
#   nvrtc CUDA's compiler alone, for tests of the kernels on a machine without a GPU
set -eu

pins=$(dirname "$0")/runtime.txt # versions and digests of the packages
arch=$(uname -m)
kind=${1:-}
dest=${2:-}
case "$kind:$dest" in
cpu:?* | cuda:?*) package=onnxruntime ;;
nvrtc:?*) package=nvidia-cuda-nvrtc ;;
*) echo "usage: $0 cpu|cuda|nvrtc DEST" >&2; exit 2 ;;
esac
version=$(sed -n "s/^$package==\([^ ]*\) .*/\1/p" "$pins")

say() { echo "runtime: $*"; }
die() { echo "runtime: $*" >&2; exit 1; }

# fetch FOLDER PACKAGE... The packages need glibc 2.28 at most; those of all Python versions contain the same library.
fetch() {
	folder=$1
	shift
	say "downloading $*"
	mkdir -p "$folder"
	for package; do grep "^$package==" "$pins"; done >"$folder/requirements.txt"
	python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
		--requirement "$folder/requirements.txt" --dest "$folder" \
		--python-version 3.12 --implementation cp --platform "manylinux_2_28_$arch" --platform "manylinux_2_27_$arch" \
		--platform "manylinux_2_17_$arch" --platform "manylinux2014_$arch"
}

# silero adds the network that finds speech. Without it Touchline works by loudness, so its failure is no error.
silero=silero_vad_16k_op15.onnx
silero_sum=7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49
has_silero() { echo "$silero_sum  $dest/$silero" | sha256sum -c --status 2>/dev/null; }
silero() {
	has_silero && return
	rm -rf "$dest/silero"
	fetch "$dest/silero" silero-vad &&
		python3 -m zipfile -e "$dest"/silero/*.whl "$dest/silero/tree" &&
		mv "$dest"/silero/tree/silero_vad-*.dist-info/licenses/LICENSE "$dest/LICENSE.silero" &&
		mv "$dest/silero/tree/silero_vad/data/$silero" "$dest/" || say "no $silero: the energy VAD will be used" >&2
	rm -rf "$dest/silero"
	if [ -e "$dest/$silero" ] && ! has_silero; then
		rm "$dest/$silero"
		say "$silero is not the file that is expected: removed" >&2
	fi
}

have=$(cat "$dest/VERSION" 2>/dev/null || true)
if [ "$have" = "nvrtc $version" ]; then exit 0; fi
library=$dest/libonnxruntime.so.$version
if [ -s "$library" ]; then
	case "$kind:$have" in
	"cpu:cpu $version" | "cpu:cuda $version" | "cuda:cuda $version")
		silero
		exit 0
		;;
	esac
fi

case "$(uname -s):$kind:$arch" in
Linux:cpu:x86_64 | Linux:cpu:aarch64 | Linux:cuda:x86_64 | Linux:nvrtc:x86_64) ;;
*:nvrtc:*) die "no package of NVRTC for $(uname -s) $arch is pinned" ;;
*) die "no ONNX Runtime package for $kind on $(uname -s) $arch: build one and set TOUCHLINE_ORT to its libonnxruntime.so" ;;
esac
python3 -m pip --version >/dev/null 2>&1 || die "no python3 with pip: install python3-pip"

mkdir -p "$(dirname "$dest")"
work=$(mktemp -d "$dest.XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM

unpack() {
	for wheel in "$work"/wheels/*.whl; do
		python3 -m zipfile -e "$wheel" "$work/tree"
		rm "$wheel"
	done
}

mkdir "$work/new"
if [ "$kind" = nvrtc ]; then
	fetch "$work/wheels" nvidia-cuda-nvrtc
	unpack
	find "$work/tree/nvidia" -name 'libnvrtc*.so*' ! -name '*.alt.so*' -exec mv {} "$work/new/" \;
	echo "$kind $version" >"$work/new/VERSION"
	chmod 755 "$work/new"
	rm -rf "$dest"
	mv "$work/new" "$dest"
	exit 0
fi
case "$kind" in cpu) fetch "$work/wheels" onnxruntime ;; cuda) fetch "$work/wheels" onnxruntime-gpu ;; esac
unpack
for file in "libonnxruntime.so.$version" libonnxruntime_providers_shared.so libonnxruntime_providers_cuda.so; do
	[ -e "$work/tree/onnxruntime/capi/$file" ] && mv "$work/tree/onnxruntime/capi/$file" "$work/new/"
done
mv "$work/tree/onnxruntime/LICENSE" "$work/tree/onnxruntime/ThirdPartyNotices.txt" "$work/new/"
[ -s "$work/new/libonnxruntime.so.$version" ] || die "the package contains no libonnxruntime.so.$version"
rm -rf "$work/tree"

# on_system succeeds if the loader or CUDA's packages have a library.
on_system() {
	[ "${RUNTIME_NVIDIA:-0}" = 1 ] && return 1
	{ ldconfig -p 2>/dev/null || /sbin/ldconfig -p 2>/dev/null; } | grep -qF "$1" && return
	for folder in $(echo "${LD_LIBRARY_PATH:-}" | tr ':' ' ') /usr/local/cuda/lib64 /usr/local/cuda-13*/lib64; do
		[ -e "$folder/$1" ] && return
	done
	return 1
}

if [ "$kind" = cuda ]; then
	want=
	# Versions of CUDA 13.0, which run with driver 580 and newer.
	on_system libcudart.so.13 || want="$want nvidia-cuda-runtime"
	on_system libcublas.so.13 || want="$want nvidia-cublas"
	on_system libcurand.so.10 || want="$want nvidia-curand"
	on_system libcufft.so.12 || want="$want nvidia-cufft"
	on_system libnvrtc.so.13 || want="$want nvidia-cuda-nvrtc"
	on_system libcudnn.so.9 || want="$want nvidia-cudnn-cu13"
	# shellcheck disable=SC2086
	if [ -n "$want" ]; then
		fetch "$work/wheels" $want
		unpack
		find "$work/tree/nvidia" -name 'lib*.so*' ! -name '*.alt.so*' ! -name 'libnvblas*' ! -name 'libcufftw*' -exec mv {} "$work/new/" \;
	fi
	on_system libcuda.so.1 || say "no NVIDIA driver on this machine (libcuda.so.1): it will run on the CPU only"
fi

echo "$kind $version" >"$work/new/VERSION"
chmod 755 "$work/new"
if [ -e "$dest" ]; then mv "$dest" "$work/old"; fi
mv "$work/new" "$dest"
silero
say "ONNX Runtime $version for $kind is in $dest: $(cd "$dest" && ls | grep -c '\.so') libraries, $(du -sh "$dest" | cut -f 1)"

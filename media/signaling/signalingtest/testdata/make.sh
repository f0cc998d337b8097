#!/bin/sh
# Encodes the clips of this folder: ten pictures of a test pattern in each codec.
set -eu
cd "$(dirname "$0")"
encode() {
	out=$1 size=$2
	shift 2
	ffmpeg -v error -nostdin -y -f lavfi -i "testsrc=size=$size:rate=25" -frames:v 10 -pix_fmt yuv420p -threads 1 -bitexact "$@" "$out"
}
realtime="-deadline realtime -cpu-used 8 -b:v 150k"
encode vp8.ivf 320x180 -c:v libvpx $realtime
encode vp8-large.ivf 640x360 -c:v libvpx $realtime
encode vp9.ivf 320x180 -c:v libvpx-vp9 $realtime -lag-in-frames 0
encode av1.ivf 320x180 -c:v libaom-av1 -usage realtime -cpu-used 8 -lag-in-frames 0 -b:v 150k
encode h264.264 320x180 -c:v libx264 -preset ultrafast -tune zerolatency -crf 35 -x264-params aud=1
encode h265.265 320x180 -c:v libx265 -preset ultrafast -tune zerolatency -crf 35 -x265-params aud=1:repeat-headers=1:bframes=0:log-level=none:pools=1

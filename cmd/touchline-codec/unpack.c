#include "libav.h"

#include <dlfcn.h>
#include <libavutil/channel_layout.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// libavformat is loaded for files of sound only: it brings dozens of libraries that the other processes do not need.
#if __has_include(<libavformat/avformat.h>)
#include <libavformat/avformat.h>

#define STRING_(x) #x
#define STRING(x) STRING_(x)

static struct {
	__typeof__(avformat_alloc_context) *alloc;
	__typeof__(avformat_open_input) *open;
	__typeof__(avformat_close_input) *close;
	__typeof__(avformat_find_stream_info) *info;
	__typeof__(av_find_best_stream) *best;
	__typeof__(av_read_frame) *read;
	__typeof__(avio_alloc_context) *io;
	__typeof__(avio_context_free) *io_free;
} lib;

int tl_unpack_load(void) {
	void *so = dlopen("libavformat.so." STRING(LIBAVFORMAT_VERSION_MAJOR), RTLD_NOW | RTLD_LOCAL);
	if (!so) return AVERROR_DEMUXER_NOT_FOUND;
	lib.alloc = dlsym(so, "avformat_alloc_context");
	lib.open = dlsym(so, "avformat_open_input");
	lib.close = dlsym(so, "avformat_close_input");
	lib.info = dlsym(so, "avformat_find_stream_info");
	lib.best = dlsym(so, "av_find_best_stream");
	lib.read = dlsym(so, "av_read_frame");
	lib.io = dlsym(so, "avio_alloc_context");
	lib.io_free = dlsym(so, "avio_context_free");
	int ok = lib.alloc && lib.open && lib.close && lib.info && lib.best && lib.read && lib.io && lib.io_free;
	return ok ? 0 : AVERROR_DEMUXER_NOT_FOUND;
}

static int from_fd(void *fd, uint8_t *buf, int size) {
	ssize_t n = read((int)(intptr_t)fd, buf, size);
	return n > 0 ? (int)n : n == 0 ? AVERROR_EOF : AVERROR(EIO);
}

static int64_t seek_fd(void *fd, int64_t offset, int whence) {
	struct stat st;
	if (whence & AVSEEK_SIZE) return fstat((int)(intptr_t)fd, &st) ? AVERROR(EIO) : st.st_size;
	off_t at = lseek((int)(intptr_t)fd, offset, whence & ~AVSEEK_FORCE);
	return at < 0 ? AVERROR(EIO) : at;
}

int tl_unpack_open(tl_unpack *u, int fd) {
	const int step = 64 << 10;
	uint8_t *buf = av_malloc(step);
	AVIOContext *io = buf ? lib.io(buf, step, 0, (void *)(intptr_t)fd, from_fd, NULL, seek_fd) : NULL;
	AVFormatContext *f = lib.alloc();
	u->pkt = av_packet_alloc();
	u->frame = av_frame_alloc();
	if (!io || !f || !u->pkt || !u->frame) return AVERROR(ENOMEM);
	f->pb = io;
	// Containers of sound alone: no playlists, which name other files.
	AVDictionary *opts = NULL;
	av_dict_set(&opts, "format_whitelist", "mov,mp3,aac,ac3,eac3,au,flac,ogg,wav,w64,matroska,webm,mpegts,mpeg,aiff,amr,caf,avi,asf", 0);
	av_dict_set(&opts, "codec_whitelist",
				"aac,aac_latm,mp3float,mp3,mp2float,mp2,flac,opus,libopus,vorbis,alac,ac3,eac3,wmav1,wmav2,amrnb,amrwb,"
				"pcm_u8,pcm_s16le,pcm_s16be,pcm_s24le,pcm_s24be,pcm_s32le,pcm_s32be,pcm_f32le,pcm_f32be,pcm_f64le,"
				"pcm_f64be,pcm_s8,pcm_alaw,pcm_mulaw,adpcm_ms,adpcm_ima_wav,adpcm_ima_oki,adpcm_ct,adpcm_g722,adpcm_g726,adpcm_swf,"
				"adpcm_yamaha,gsm,gsm_ms,truespeech,g723_1,g729,wmapro,wmalossless,wmavoice,atrac3,atrac3p,imc,iac,dca,sipr,tta", 0);
	int err = lib.open(&f, NULL, NULL, &opts); // frees f if it fails
	av_dict_free(&opts);
	u->format = err < 0 ? NULL : f;
	if (err < 0) {
		av_freep(&io->buffer);
		lib.io_free(&io);
		return err;
	}
	for (unsigned i = 0; i < f->nb_streams; i++)
		if (f->streams[i]->codecpar->codec_type != AVMEDIA_TYPE_AUDIO) f->streams[i]->discard = AVDISCARD_ALL;
	if ((err = lib.info(f, NULL)) < 0) return err;
	const AVCodec *codec = NULL;
	if ((err = lib.best(f, AVMEDIA_TYPE_AUDIO, -1, -1, &codec, 0)) < 0) return err;
	u->stream = err;
	u->ctx = avcodec_alloc_context3(codec);
	if (!u->ctx) return AVERROR(ENOMEM);
	if ((err = avcodec_parameters_to_context(u->ctx, f->streams[u->stream]->codecpar)) < 0) return err;
	u->ctx->pkt_timebase = f->streams[u->stream]->time_base;
	u->ctx->thread_count = 1;
	return avcodec_open2(u->ctx, codec, NULL);
}

static float sample(const AVFrame *f, int channel, int i) {
	int planar = av_sample_fmt_is_planar(f->format), n = f->ch_layout.nb_channels;
	const uint8_t *p = planar ? f->extended_data[channel] : f->extended_data[0];
	int at = planar ? i : i * n + channel;
	switch (av_get_packed_sample_fmt(f->format)) {
	case AV_SAMPLE_FMT_U8:
		return (p[at] - 128) / 128.f;
	case AV_SAMPLE_FMT_S16:
		return ((const int16_t *)p)[at] / 32768.f;
	case AV_SAMPLE_FMT_S32:
		return ((const int32_t *)p)[at] / 2147483648.f;
	case AV_SAMPLE_FMT_FLT:
		return ((const float *)p)[at];
	case AV_SAMPLE_FMT_DBL:
		return ((const double *)p)[at];
	case AV_SAMPLE_FMT_S64:
		return ((const int64_t *)p)[at] / 9223372036854775808.f;
	default:
		return 0;
	}
}

// mix writes the mean of the channels of the frame.
static int mix(tl_unpack *u) {
	const AVFrame *f = u->frame;
	int n = f->ch_layout.nb_channels;
	if (n < 1 || n > 8 || f->nb_samples > 1 << 20) return AVERROR_PATCHWELCOME;
	if (f->nb_samples > u->room) {
		float *more = av_realloc_array(u->mono, f->nb_samples, sizeof(float));
		if (!more) return AVERROR(ENOMEM);
		u->mono = more;
		u->room = f->nb_samples;
	}
	for (int i = 0; i < f->nb_samples; i++) {
		float sum = 0;
		for (int c = 0; c < n; c++) sum += sample(f, c, i);
		u->mono[i] = sum / n;
	}
	return f->nb_samples;
}

int tl_unpack_next(tl_unpack *u, float **mono, int *rate) {
	for (int faults = 0;;) {
		int err = avcodec_receive_frame(u->ctx, u->frame);
		if (err == 0) {
			int n = mix(u);
			*mono = u->mono;
			*rate = u->frame->sample_rate;
			av_frame_unref(u->frame);
			if (n == 0) continue;
			return n;
		}
		if (err == AVERROR_EOF) return 0;
		if (err != AVERROR(EAGAIN)) { // a faulty frame is left out
			if (++faults > 1000) return err;
			continue;
		}
		av_packet_unref(u->pkt);
		if (lib.read(u->format, u->pkt) < 0) {
			avcodec_send_packet(u->ctx, NULL);
		} else if (u->pkt->stream_index == u->stream) {
			avcodec_send_packet(u->ctx, u->pkt); // a faulty packet is left out
		}
	}
}

void tl_unpack_close(tl_unpack *u) {
	AVFormatContext *f = u->format;
	if (f) {
		AVIOContext *io = f->pb;
		lib.close(&f);
		if (io) av_freep(&io->buffer);
		lib.io_free(&io);
	}
	avcodec_free_context(&u->ctx);
	av_packet_free(&u->pkt);
	av_frame_free(&u->frame);
	av_freep(&u->mono);
	memset(u, 0, sizeof(*u));
}

#else

int tl_unpack_load(void) { return AVERROR_DEMUXER_NOT_FOUND; }
int tl_unpack_open(tl_unpack *u, int fd) { return AVERROR_DEMUXER_NOT_FOUND; }
int tl_unpack_next(tl_unpack *u, float **mono, int *rate) { return AVERROR_DEMUXER_NOT_FOUND; }
void tl_unpack_close(tl_unpack *u) {}

#endif

#include "libav.h"

#include <libavutil/channel_layout.h>
#include <libavutil/imgutils.h>
#include <libavutil/opt.h>
#include <limits.h>
#include <string.h>
#include <sys/resource.h>

void tl_setup(void) { av_log_set_level(AV_LOG_FATAL); }

void tl_error(int err, char *text, int size) { av_strerror(err, text, size); }

int tl_has(const char *name, int encoder) {
	return (encoder ? avcodec_find_encoder_by_name(name) : avcodec_find_decoder_by_name(name)) != NULL;
}

static void scaler_close(tl_scaler *s) {
	sws_freeContext(s->sws);
	memset(s, 0, sizeof(*s));
}

// matrix_of returns the picture's matrix, or BT.601 if it is unspecified, as with
// the encoders of browsers.
static int matrix_of(int space) {
	switch (space) {
	case AVCOL_SPC_BT709:
		return SWS_CS_ITU709;
	case AVCOL_SPC_FCC:
		return SWS_CS_FCC;
	case AVCOL_SPC_SMPTE240M:
		return SWS_CS_SMPTE240M;
	case AVCOL_SPC_BT2020_NCL:
	case AVCOL_SPC_BT2020_CL:
		return SWS_CS_BT2020;
	default:
		return SWS_CS_ITU601;
	}
}

// full_range returns whether luma ranges from 0 to 255. The deprecated yuvj
// formats imply it.
static int full_range(const AVFrame *f) {
	switch (f->format) {
	case AV_PIX_FMT_YUVJ420P:
	case AV_PIX_FMT_YUVJ422P:
	case AV_PIX_FMT_YUVJ444P:
	case AV_PIX_FMT_YUVJ440P:
	case AV_PIX_FMT_RGB24:
		return 1;
	default:
		return f->color_range == AVCOL_RANGE_JPEG;
	}
}

// scale converts f to w x h pixels of format to, with the same matrix for YUV.
static int scale(tl_scaler *s, const AVFrame *f, int to, int to_full, uint8_t *const dst[4], const int stride[4], int w,
				 int h) {
	int matrix = matrix_of(f->colorspace), range = full_range(f);
	int key[7] = {f->width, f->height, f->format, matrix * 2 + range, w, h, to};
	if (!s->sws || memcmp(key, s->key, sizeof(key))) {
		scaler_close(s);
		if (!sws_isSupportedInput(f->format)) return AVERROR(ENOSYS);
		int flags = SWS_AREA;
		// The fast conversion without scaling leaves out the last columns of a width that is no multiple of 8.
		if (to == AV_PIX_FMT_RGB24 && w % 8 && w == f->width && h == f->height) flags |= SWS_ACCURATE_RND;
		s->sws = sws_getContext(f->width, f->height, f->format, w, h, to, flags, NULL, NULL, NULL);
		if (!s->sws) return AVERROR(ENOMEM);
		const int *table = sws_getCoefficients(matrix);
		sws_setColorspaceDetails(s->sws, table, range, table, to_full, 0, 1 << 16, 1 << 16);
		memcpy(s->key, key, sizeof(key));
	}
	int n = sws_scale(s->sws, (const uint8_t *const *)f->data, f->linesize, 0, f->height, dst, stride);
	return n == h ? 0 : n < 0 ? n : AVERROR_UNKNOWN;
}

// raise_memory raises the memory limit to so many bytes.
static void raise_memory(rlim_t need) {
	struct rlimit limit;
	if (!getrlimit(RLIMIT_DATA, &limit) && limit.rlim_cur != RLIM_INFINITY && need > limit.rlim_cur) {
		limit.rlim_cur = need < limit.rlim_max ? need : limit.rlim_max;
		setrlimit(RLIMIT_DATA, &limit);
	}
}

// memory_of returns the memory that pictures of a size need: a codec keeps up to 16, of up to 4.5 bytes for each pixel.
static rlim_t memory_of(int width, int height) { return (128 << 20) + (rlim_t)width * height * 72; }

// get_buffer raises the memory limit for a picture.
static int get_buffer(AVCodecContext *ctx, AVFrame *f, int flags) {
	raise_memory(memory_of(f->width, f->height));
	return avcodec_default_get_buffer2(ctx, f, flags);
}

int tl_decoder_open(tl_decoder *d, const char *name, int64_t max_pixels) {
	const AVCodec *codec = avcodec_find_decoder_by_name(name);
	if (!codec) return AVERROR_DECODER_NOT_FOUND;
	// Libraries take memory for their pictures themselves, before their size is known here.
	if (!strncmp(name, "lib", 3)) raise_memory(1 << 30);
	d->ctx = avcodec_alloc_context3(codec);
	d->pkt = av_packet_alloc();
	d->got = av_frame_alloc();
	d->newest = av_frame_alloc();
	if (!d->ctx || !d->pkt || !d->got || !d->newest) return AVERROR(ENOMEM);
	d->ctx->max_pixels = max_pixels;
	d->ctx->get_buffer2 = get_buffer;
	// Frame threads would delay pictures.
	d->ctx->thread_count = 1;
	d->ctx->pkt_timebase = (AVRational){1, 1000000};
	AVDictionary *opts = NULL;
	if (!strcmp(name, "libdav1d")) av_dict_set(&opts, "max_frame_delay", "1", 0);
	int err = avcodec_open2(d->ctx, codec, &opts);
	av_dict_free(&opts);
	return err;
}

void tl_decoder_close(tl_decoder *d) {
	avcodec_free_context(&d->ctx);
	av_packet_free(&d->pkt);
	av_frame_free(&d->got);
	av_frame_free(&d->newest);
	scaler_close(&d->rgb);
	scaler_close(&d->turn);
}

int tl_send(tl_decoder *d, const void *data, int size, int64_t id) {
	if (!size) return avcodec_send_packet(d->ctx, NULL);
	// av_new_packet adds the zero padding that decoders read.
	int err = av_new_packet(d->pkt, size);
	if (err < 0) return err;
	memcpy(d->pkt->data, data, size);
	d->pkt->pts = d->pkt->dts = id;
	err = avcodec_send_packet(d->ctx, d->pkt);
	av_packet_unref(d->pkt);
	return err;
}

// unit returns the sign of an element of a display matrix if it is of a rotation by a right angle or a reflection.
static int unit(int32_t v) { return v > 1 << 15 ? 1 : v < -(1 << 15) ? -1 : 0; }

// plain fills to with the picture as 8-bit 4:2:0.
static int plain(tl_decoder *d, const AVFrame *f, AVFrame *to) {
	int full = full_range(f);
	to->format = full ? AV_PIX_FMT_YUVJ420P : AV_PIX_FMT_YUV420P;
	to->width = f->width;
	to->height = f->height;
	int err = av_frame_get_buffer(to, 0);
	return err < 0 ? err : scale(&d->turn, f, to->format, full, to->data, to->linesize, f->width, f->height);
}

// replace gives f the pixels of to, which becomes empty. The time and the colours stay.
static void replace(AVFrame *f, AVFrame *to) {
	to->pts = f->pts;
	to->colorspace = f->colorspace;
	to->color_range = full_range(f) ? AVCOL_RANGE_JPEG : AVCOL_RANGE_MPEG;
	av_frame_unref(f);
	av_frame_move_ref(f, to);
}

// turn makes the picture upright: a camera may store its orientation, in EXIF or in an SEI message, instead of turning the picture.
static int turn(tl_decoder *d, AVFrame *f) {
	const AVFrameSideData *sd = av_frame_get_side_data(f, AV_FRAME_DATA_DISPLAYMATRIX);
	static const int32_t turned[4][5] = {{1 << 16, 0, 0, 0, 1 << 16}, {0, 1 << 16, 0, -(1 << 16), 0}, {-(1 << 16), 0, 0, 0, -(1 << 16)}, {0, -(1 << 16), 0, 1 << 16, 0}};
	if (!sd && !d->quarters) return 0;
	// A pixel at x, y is shown at x * a + y * c, x * b + y * e.
	const int32_t *m = d->quarters ? turned[d->quarters & 3] : (const int32_t *)sd->data;
	int a = unit(m[0]), b = unit(m[1]), c = unit(m[3]), e = unit(m[4]);
	if (a * e - b * c == 0 || (a && b) || (a == 1 && e == 1)) return 0; // no right angle, or upright
	int w = f->width, h = f->height, err;
	AVFrame *flat = av_frame_alloc(), *to = av_frame_alloc();
	if (!flat || !to) err = AVERROR(ENOMEM);
	else if ((err = plain(d, f, flat)) >= 0) {
		to->format = flat->format;
		to->width = a ? w : h;
		to->height = a ? h : w;
		err = av_frame_get_buffer(to, 0);
	}
	for (int p = 0; err >= 0 && p < 3; p++) {
		int pw = p ? (w + 1) / 2 : w, ph = p ? (h + 1) / 2 : h;
		int ox = (a < 0 ? pw - 1 : 0) + (c < 0 ? ph - 1 : 0), oy = (b < 0 ? pw - 1 : 0) + (e < 0 ? ph - 1 : 0);
		for (int y = 0; y < ph; y++)
			for (int x = 0; x < pw; x++)
				to->data[p][(oy + x * b + y * e) * to->linesize[p] + ox + x * a + y * c] = flat->data[p][y * flat->linesize[p] + x];
	}
	if (err >= 0) replace(f, to);
	av_frame_free(&flat);
	av_frame_free(&to);
	return err < 0 ? err : 0;
}

int tl_receive(tl_decoder *d, int64_t *id, int *width, int *height) {
	int err = avcodec_receive_frame(d->ctx, d->got);
	if (err == AVERROR(EAGAIN) || err == AVERROR_EOF) return 0;
	if (err < 0) return err;
	AVFrame *f = d->got;
	if (f->width < 1 || f->height < 1 || (int64_t)f->width * f->height > d->ctx->max_pixels || !f->data[0]) {
		av_frame_unref(f);
		return AVERROR_INVALIDDATA;
	}
	if ((err = turn(d, f)) < 0) {
		av_frame_unref(f);
		return err;
	}
	*id = f->pts;
	*width = f->width;
	*height = f->height;
	av_frame_unref(d->newest);
	av_frame_move_ref(d->newest, f);
	return 1;
}

// own makes the newest picture one of 8-bit 4:2:0 that nothing else refers to: decoders still read pictures that they have returned.
static int own(tl_decoder *d) {
	AVFrame *f = d->newest;
	if ((f->format == AV_PIX_FMT_YUV420P || f->format == AV_PIX_FMT_YUVJ420P) && av_frame_is_writable(f)) return 0;
	AVFrame *to = av_frame_alloc();
	if (!to) return AVERROR(ENOMEM);
	int err = plain(d, f, to);
	if (err >= 0) replace(f, to);
	av_frame_free(&to);
	return err < 0 ? err : 0;
}

int tl_cover(tl_decoder *d, const int32_t *runs, int n) {
	int err = own(d);
	if (err < 0) return err;
	AVFrame *f = d->newest;
	for (int i = 0; i < n; i++) {
		int y = runs[3 * i], x0 = runs[3 * i + 1], x1 = runs[3 * i + 2];
		if (y < 0 || y >= f->height || x0 < 0 || x1 > f->width || x0 >= x1) return AVERROR(EINVAL);
		memset(f->data[0] + y * f->linesize[0] + x0, full_range(f) ? 0 : 16, x1 - x0);
		for (int p = 1; p < 3; p++) memset(f->data[p] + y / 2 * f->linesize[p] + x0 / 2, 128, (x1 + 1) / 2 - x0 / 2);
	}
	return 0;
}

int tl_rgb(tl_decoder *d, uint8_t *dst, int w, int h) {
	uint8_t *planes[4] = {dst};
	int stride[4] = {3 * w};
	return scale(&d->rgb, d->newest, AV_PIX_FMT_RGB24, 1, planes, stride, w, h);
}

int tl_encoder_open(tl_encoder *e, const char *name, int w, int h, int fps, int64_t bit_rate, int matrix) {
	raise_memory(memory_of(w, h));
	const AVCodec *codec = avcodec_find_encoder_by_name(name);
	if (!codec) return AVERROR_ENCODER_NOT_FOUND;
	AVCodecContext *c = e->ctx = avcodec_alloc_context3(codec);
	e->pkt = av_packet_alloc();
	e->in = av_frame_alloc();
	e->conv = av_frame_alloc();
	if (!c || !e->pkt || !e->in || !e->conv) return AVERROR(ENOMEM);
	e->pts = -1;
	c->width = w;
	c->height = h;
	c->pix_fmt = AV_PIX_FMT_YUV420P;
	// Timestamps are frame numbers: with real times some encoders wait for the
	// next picture to determine the duration.
	c->time_base = (AVRational){1, fps};
	c->framerate = (AVRational){fps, 1};
	c->color_range = AVCOL_RANGE_MPEG;
	c->colorspace = matrix;
	c->thread_count = 1;
	c->max_b_frames = 0;
	c->gop_size = 10 * fps; // most key frames are requested
	c->bit_rate = bit_rate;
	c->rc_max_rate = bit_rate;
	c->rc_buffer_size = bit_rate / 2;
	AVDictionary *opts = NULL;
	if (!strcmp(name, "libx264")) {
		av_dict_set(&opts, "preset", "superfast", 0);
		av_dict_set(&opts, "tune", "zerolatency", 0);
		av_dict_set(&opts, "profile", "baseline", 0);
		av_dict_set(&opts, "forced-idr", "1", 0);
		av_dict_set(&opts, "x264-params", "scenecut=0", 0);
	} else if (!strcmp(name, "libvpx")) {
		c->rc_min_rate = bit_rate;
		c->qmin = 4;
		c->qmax = 56;
		av_dict_set(&opts, "deadline", "realtime", 0);
		av_dict_set(&opts, "cpu-used", "12", 0);
		av_dict_set(&opts, "lag-in-frames", "0", 0);
		av_dict_set(&opts, "auto-alt-ref", "0", 0);
	} else { // libopenh264
		av_dict_set(&opts, "allow_skip_frames", "0", 0);
		av_dict_set(&opts, "rc_mode", "bitrate", 0);
	}
	int err = avcodec_open2(c, codec, &opts);
	av_dict_free(&opts);
	return err;
}

void tl_encoder_close(tl_encoder *e) {
	avcodec_free_context(&e->ctx);
	av_packet_free(&e->pkt);
	av_frame_free(&e->in);
	av_frame_free(&e->conv);
	scaler_close(&e->yuv);
}

// encode sends e->in, scaled to the encoder's size. It may have one odd row or column more, which is cut off.
static int encode(tl_encoder *e, int key) {
	AVFrame *f = e->in;
	int w = e->ctx->width, h = e->ctx->height;
	if (f->width - w <= 1 && f->width >= w && f->height - h <= 1 && f->height >= h) {
		w = f->width;
		h = f->height;
	}
	if (f->format != AV_PIX_FMT_YUV420P || full_range(f) || w != f->width || h != f->height) {
		AVFrame *to = e->conv;
		if (!to->buf[0] || to->width != w || to->height != h || !av_frame_is_writable(to)) {
			av_frame_unref(to);
			to->format = AV_PIX_FMT_YUV420P;
			to->width = w;
			to->height = h;
			int err = av_frame_get_buffer(to, 0);
			if (err < 0) return err;
		}
		int err = scale(&e->yuv, f, AV_PIX_FMT_YUV420P, 0, to->data, to->linesize, w, h);
		if (err < 0) return err;
		av_frame_unref(f);
		err = av_frame_ref(f, to);
		if (err < 0) return err;
	}
	f->width = e->ctx->width;
	f->height = e->ctx->height;
	f->color_range = AVCOL_RANGE_MPEG;
	f->pict_type = key ? AV_PICTURE_TYPE_I : AV_PICTURE_TYPE_NONE;
	f->crop_top = f->crop_bottom = f->crop_left = f->crop_right = 0;
	while (f->nb_side_data > 0) av_frame_remove_side_data(f, f->side_data[0]->type);
	f->pts = ++e->pts;
	return avcodec_send_frame(e->ctx, f);
}

int tl_encode_newest(tl_encoder *e, tl_decoder *d, int key) {
	av_frame_unref(e->in);
	int err = av_frame_ref(e->in, d->newest);
	if (err >= 0) err = encode(e, key);
	av_frame_unref(e->in);
	return err;
}

enum { ROOM_HEAD = 64 };

uint8_t *tl_raw_room(tl_encoder *e, int head, int size) {
	if (head > ROOM_HEAD || size < 0 || size > INT_MAX - 2 * ROOM_HEAD) return NULL;
	size_t need = ROOM_HEAD + (size_t)size + TL_SLACK;
	// Allocate a new buffer while the encoder still holds the last one.
	if (!e->raw || e->raw->size != need || !av_buffer_is_writable(e->raw)) {
		av_buffer_unref(&e->raw);
		e->raw = av_buffer_alloc(need);
		if (!e->raw) return NULL;
	}
	return e->raw->data + ROOM_HEAD - head;
}

void tl_raw_free(tl_encoder *e) { av_buffer_unref(&e->raw); }

int tl_encode_raw(tl_encoder *e, int w, int h, int key) {
	AVFrame *f = e->in;
	int format = AV_PIX_FMT_YUV420P;
	int size = av_image_get_buffer_size(format, w, h, 1);
	if (size < 0) return size;
	if (!e->raw || e->raw->size < ROOM_HEAD + (size_t)size) return AVERROR(EINVAL);
	av_frame_unref(f);
	f->format = format;
	f->width = w;
	f->height = h;
	f->color_range = AVCOL_RANGE_MPEG;
	int err = av_image_fill_arrays(f->data, f->linesize, e->raw->data + ROOM_HEAD, format, w, h, 1);
	if (err >= 0) err = (f->buf[0] = av_buffer_ref(e->raw)) ? encode(e, key) : AVERROR(ENOMEM);
	av_frame_unref(f);
	return err;
}

int tl_encoded(tl_encoder *e, uint8_t **data, int *size, int *key) {
	av_packet_unref(e->pkt);
	int err = avcodec_receive_packet(e->ctx, e->pkt);
	if (err == AVERROR(EAGAIN) || err == AVERROR_EOF) return 0;
	if (err < 0) return err;
	*data = e->pkt->data;
	*size = e->pkt->size;
	*key = (e->pkt->flags & AV_PKT_FLAG_KEY) != 0;
	return 1;
}

int tl_sound_open(tl_sound *s, const char *name, int rate, int64_t bit_rate) {
	const AVCodec *codec = avcodec_find_encoder_by_name(name);
	if (!codec) return AVERROR_ENCODER_NOT_FOUND;
	AVCodecContext *c = s->ctx = avcodec_alloc_context3(codec);
	s->pkt = av_packet_alloc();
	s->frame = av_frame_alloc();
	if (!c || !s->pkt || !s->frame) return AVERROR(ENOMEM);
	c->sample_fmt = strcmp(name, "aac") ? AV_SAMPLE_FMT_S16P : AV_SAMPLE_FMT_FLTP;
	c->sample_rate = rate;
	c->bit_rate = bit_rate;
	c->thread_count = 1;
	av_channel_layout_default(&c->ch_layout, 1);
	int err = avcodec_open2(c, codec, NULL);
	if (err < 0) return err;
	s->frame->format = c->sample_fmt;
	s->frame->sample_rate = rate;
	s->frame->nb_samples = c->frame_size;
	err = av_channel_layout_copy(&s->frame->ch_layout, &c->ch_layout);
	return err < 0 ? err : av_frame_get_buffer(s->frame, 0);
}

void tl_sound_close(tl_sound *s) {
	avcodec_free_context(&s->ctx);
	av_packet_free(&s->pkt);
	av_frame_free(&s->frame);
}

int tl_sound_frame(const tl_sound *s) { return s->ctx->frame_size; }

int tl_sound_send(tl_sound *s, const int16_t *pcm) {
	if (!pcm) return avcodec_send_frame(s->ctx, NULL);
	AVFrame *f = s->frame;
	int err = av_frame_make_writable(f);
	if (err < 0) return err;
	if (f->format == AV_SAMPLE_FMT_FLTP) {
		float *to = (float *)f->data[0];
		for (int i = 0; i < f->nb_samples; i++) to[i] = pcm[i] / 32768.0f;
	} else {
		memcpy(f->data[0], pcm, 2 * f->nb_samples);
	}
	f->pts = s->pts;
	s->pts += f->nb_samples;
	return avcodec_send_frame(s->ctx, f);
}

int tl_sound_next(tl_sound *s, uint8_t **data, int *size) {
	av_packet_unref(s->pkt);
	int err = avcodec_receive_packet(s->ctx, s->pkt);
	if (err == AVERROR(EAGAIN) || err == AVERROR_EOF) return 0;
	if (err < 0) return err;
	*data = s->pkt->data;
	*size = s->pkt->size;
	return 1;
}

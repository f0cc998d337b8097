// The little that this program needs of libavcodec: one decoder, one encoder,
// one picture kept. Not safe for use by two threads at once. Functions return
// a negative libav error when they fail unless they say otherwise.
#pragma once

#include <libavcodec/avcodec.h>
#include <libswscale/swscale.h>
#include <stdint.h>

// scaler converts pictures; its context is made anew when anything of the
// picture changes.
typedef struct {
	struct SwsContext *sws;
	int key[7];
} tl_scaler;

// tl_decoder turns access units into pictures and keeps the newest.
typedef struct {
	AVCodecContext *ctx;
	AVPacket *pkt;
	AVFrame *got, *newest;
	tl_scaler rgb;
} tl_decoder;

// tl_encoder turns pictures into access units, one for one.
typedef struct {
	AVCodecContext *ctx;
	AVPacket *pkt;
	AVFrame *in, *conv;
	AVBufferRef *raw;
	tl_scaler yuv;
	int64_t pts;
} tl_encoder;

void tl_setup(void);
void tl_error(int err, char *text, int size);
int tl_has(const char *name, int encoder);

int tl_decoder_open(tl_decoder *d, const char *name, int64_t max_pixels);
void tl_decoder_close(tl_decoder *d);
// tl_send decodes size bytes; size 0 asks for the pictures held back.
int tl_send(tl_decoder *d, const void *data, int size, int64_t id);
// tl_receive takes the next picture: 1, or 0 when there is none yet.
int tl_receive(tl_decoder *d, int64_t *id, int *width, int *height);
// tl_rgb writes the newest picture, scaled; dst holds 3*w*h + TL_SLACK bytes.
int tl_rgb(tl_decoder *d, uint8_t *dst, int w, int h);

// TL_SLACK is room behind a picture for code that writes whole vectors.
#define TL_SLACK 64

int tl_encoder_open(tl_encoder *e, const char *name, int w, int h, int fps, int64_t bit_rate, int matrix);
void tl_encoder_close(tl_encoder *e);
// tl_encode_newest encodes the decoder's newest picture.
int tl_encode_newest(tl_encoder *e, tl_decoder *d, int key);
// tl_raw_room makes room for a raw picture of size bytes that begins at an
// aligned place, and returns the address head bytes before it.
uint8_t *tl_raw_room(tl_encoder *e, int head, int size);
// tl_encode_raw encodes the picture in that room.
int tl_encode_raw(tl_encoder *e, int rgb, int w, int h, int key);
// tl_encoded takes the next access unit: 1, or 0 when there is none. It stays valid
// until the next call.
int tl_encoded(tl_encoder *e, uint8_t **data, int *size, int *key);

// tl_confine takes away what a codec never needs: files, sockets, other
// programs. It returns 0 or an errno.
int tl_confine(void);

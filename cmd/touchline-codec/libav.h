// The part of libavcodec that this program uses: one decoder, one encoder, and the
// newest picture. Not thread-safe. Functions return a negative libav error on
// failure unless documented otherwise.
#pragma once

#include <libavcodec/avcodec.h>
#include <libswscale/swscale.h>
#include <stdint.h>

// scaler converts pictures. Its context is recreated when the picture's format
// changes.
typedef struct {
	struct SwsContext *sws;
	int key[7];
} tl_scaler;

// tl_decoder decodes access units and keeps the newest picture.
typedef struct {
	AVCodecContext *ctx;
	AVPacket *pkt;
	AVFrame *got, *newest;
	tl_scaler rgb, turn;
	int quarters; // of a turn, clockwise, for pictures that do not say it themselves
} tl_decoder;

// tl_encoder encodes each picture into one access unit.
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
// tl_send decodes size bytes; size 0 flushes the decoder.
int tl_send(tl_decoder *d, const void *data, int size, int64_t id);
// tl_receive takes the next picture and returns 1, or 0 if there is none yet.
int tl_receive(tl_decoder *d, int64_t *id, int *width, int *height);
// tl_cover makes pixels of the newest picture black: n runs of row, first column and the column after the last.
int tl_cover(tl_decoder *d, const int32_t *runs, int n);
// tl_rgb scales the newest picture into dst, of 3*w*h + TL_SLACK bytes.
int tl_rgb(tl_decoder *d, uint8_t *dst, int w, int h);

// TL_SLACK is space after a picture for code that writes whole vectors.
#define TL_SLACK 64

int tl_encoder_open(tl_encoder *e, const char *name, int w, int h, int fps, int64_t bit_rate, int matrix);
void tl_encoder_close(tl_encoder *e);
// tl_encode_newest encodes the decoder's newest picture.
int tl_encode_newest(tl_encoder *e, tl_decoder *d, int key);
// tl_raw_room allocates an aligned raw picture of size bytes and returns the
// address head bytes before it.
uint8_t *tl_raw_room(tl_encoder *e, int head, int size);
void tl_raw_free(tl_encoder *e);
// tl_encode_raw encodes the picture in that buffer.
int tl_encode_raw(tl_encoder *e, int w, int h, int key);
// tl_encoded takes the next access unit and returns 1, or 0 if there is none. The
// data is valid until the next call.
int tl_encoded(tl_encoder *e, uint8_t **data, int *size, int *key);

// tl_sound encodes mono sound of 16 bits.
typedef struct {
	AVCodecContext *ctx;
	AVPacket *pkt;
	AVFrame *frame;
	int64_t pts;
} tl_sound;

// tl_sound_open opens an encoder for a rate in Hz and a bit rate in bit/s.
int tl_sound_open(tl_sound *s, const char *name, int rate, int64_t bit_rate);
void tl_sound_close(tl_sound *s);
// tl_sound_frame returns the samples of each frame.
int tl_sound_frame(const tl_sound *s);
// tl_sound_send encodes one whole frame; NULL ends the sound.
int tl_sound_send(tl_sound *s, const int16_t *pcm);
// tl_sound_next returns 1 with the next packet, which is valid until the next call; 0 when there is none yet.
int tl_sound_next(tl_sound *s, uint8_t **data, int *size);

// tl_unpack decodes the sound of a file of any usual format.
typedef struct {
	void *format; // AVFormatContext
	AVCodecContext *ctx;
	AVPacket *pkt;
	AVFrame *frame;
	int stream;
	float *mono;
	int room;
} tl_unpack;

// tl_unpack_load loads libavformat. Call it before child.Pure.
int tl_unpack_load(void);
// tl_unpack_open opens the best sound of the file with a descriptor, and no other file.
int tl_unpack_open(tl_unpack *u, int fd);
// tl_unpack_next returns the number of the next samples, the means of the channels, which are valid until the next call; 0 at
// the end.
int tl_unpack_next(tl_unpack *u, float **mono, int *rate);
void tl_unpack_close(tl_unpack *u);

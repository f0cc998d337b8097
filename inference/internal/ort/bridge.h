// What Go calls: ONNX Runtime's function table and the few functions of the CUDA runtime, which Go cannot call through a pointer itself.
#ifndef TOUCHLINE_ORT_BRIDGE_H
#define TOUCHLINE_ORT_BRIDGE_H

#include <stddef.h>
#include <stdint.h>

#include "onnxruntime_c_api.h"

// ---- the library ----

// tl_open loads a shared library for good. NULL with the reason in *why, which stays valid until the thread's next dl call.
void *tl_open(const char *path, const char **why);
void *tl_symbol(void *library, const char *name);
// tl_find asks the system's loader where it finds a library; 0 if nowhere.
int tl_find(const char *name, char *path, size_t max);

const char *tl_version(void *get_api_base);
const OrtApi *tl_api(void *get_api_base, uint32_t version);

// ---- statuses: NULL is success ----

int tl_status_code(const OrtApi *a, const OrtStatus *s);
const char *tl_status_text(const OrtApi *a, const OrtStatus *s);
void tl_status_free(const OrtApi *a, OrtStatus *s);

// tl_env makes an environment that logs fatal errors only.
OrtStatus *tl_env(const OrtApi *a, OrtEnv **out);
void tl_env_free(const OrtApi *a, OrtEnv *env);

// ---- sessions ----

// tl_options makes session options: pattern and arena are 0 or 1.
OrtStatus *tl_options(const OrtApi *a, int threads, int pattern, int arena, OrtSessionOptions **out);
void tl_options_free(const OrtApi *a, OrtSessionOptions *o);
// tl_options_initializer makes a session use a value, which must outlive it, in place of an initializer of its file.
OrtStatus *tl_options_initializer(const OrtApi *a, OrtSessionOptions *o, const char *name, const OrtValue *v);
OrtStatus *tl_cuda_options(const OrtApi *a, OrtCUDAProviderOptionsV2 **out);
void tl_cuda_options_free(const OrtApi *a, OrtCUDAProviderOptionsV2 *o);
// tl_cuda_options_update resets the options that it is not given.
OrtStatus *tl_cuda_options_update(const OrtApi *a, OrtCUDAProviderOptionsV2 *o, char **keys, char **values, size_t n);
OrtStatus *tl_cuda_stream_option(const OrtApi *a, OrtCUDAProviderOptionsV2 *o, uintptr_t stream);
OrtStatus *tl_options_cuda(const OrtApi *a, OrtSessionOptions *o, const OrtCUDAProviderOptionsV2 *cuda);
OrtStatus *tl_session(const OrtApi *a, const OrtEnv *env, const char *path, const OrtSessionOptions *o, OrtSession **out);
void tl_session_free(const OrtApi *a, OrtSession *s);
OrtStatus *tl_session_count(const OrtApi *a, const OrtSession *s, int output, size_t *out);
// tl_session_value describes one input or output: *name and *info are the caller's to free (tl_string_free, tl_type_info_free).
OrtStatus *tl_session_value(const OrtApi *a, const OrtSession *s, int output, size_t i, char **name, OrtTypeInfo **info);
// tl_type_info_tensor gives the tensor part, NULL for what is no tensor; it belongs to the type info.
OrtStatus *tl_type_info_tensor(const OrtApi *a, const OrtTypeInfo *info, const OrtTensorTypeAndShapeInfo **out);
void tl_type_info_free(const OrtApi *a, OrtTypeInfo *info);
OrtStatus *tl_string_free(const OrtApi *a, char *s);

OrtStatus *tl_tensor_info(const OrtApi *a, const OrtTensorTypeAndShapeInfo *t, int *type, size_t *rank);
OrtStatus *tl_tensor_dims(const OrtApi *a, const OrtTensorTypeAndShapeInfo *t, int64_t *dims, size_t rank);

// ---- values ----

OrtStatus *tl_memory_info(const OrtApi *a, int cuda, int index, OrtMemoryInfo **out);
void tl_memory_info_free(const OrtApi *a, OrtMemoryInfo *m);
OrtStatus *tl_value(const OrtApi *a, const OrtMemoryInfo *m, uintptr_t data, size_t bytes, const int64_t *dims, size_t rank,
                    int type, OrtValue **out);
void tl_value_free(const OrtApi *a, OrtValue *v);

// ---- binding and running ----

OrtStatus *tl_binding(const OrtApi *a, OrtSession *s, OrtIoBinding **out);
void tl_binding_free(const OrtApi *a, OrtIoBinding *b);
OrtStatus *tl_bind(const OrtApi *a, OrtIoBinding *b, int output, const char *name, const OrtValue *v);

OrtStatus *tl_run_options(const OrtApi *a, OrtRunOptions **out);
void tl_run_options_free(const OrtApi *a, OrtRunOptions *o);
OrtStatus *tl_run_options_set(const OrtApi *a, OrtRunOptions *o, const char *key, const char *value);
OrtStatus *tl_run_options_terminate(const OrtApi *a, OrtRunOptions *o, int on);
OrtStatus *tl_run(const OrtApi *a, OrtSession *s, const OrtRunOptions *o, const OrtIoBinding *b);

// ---- the CUDA runtime; every int is a cudaError_t ----

typedef struct tl_cuda {
  int (*set_device)(int);
  int (*capture_mode)(int *);
  int (*device_count)(int *);
  int (*stream_create)(void **, unsigned, int);
  int (*stream_destroy)(void *);
  int (*stream_sync)(void *);
  int (*malloc)(void **, size_t);
  int (*free)(void *);
  int (*malloc_host)(void **, size_t, unsigned);
  int (*free_host)(void *);
  int (*copy)(void *, const void *, size_t, int, void *);
  int (*copy_rows)(void *, size_t, const void *, size_t, size_t, size_t, int, void *);
  int (*copy_box)(const void *, void *);
  int (*set)(void *, int, size_t, void *);
  int (*mem_info)(size_t *, size_t *);
  int (*end_capture)(void *, void **);
  int (*graph_destroy)(void *);
  int (*last_error)(void);
  const char *(*error_name)(int);
  const char *(*error_text)(int);
  int (*driver_name)(char *, int, int);  // cuDeviceGetName of the driver; NULL if it is not there
} tl_cuda;

// tl_cuda_bind fills the table; NULL or the name of the function that is missing.
const char *tl_cuda_bind(tl_cuda *c, void *runtime, void *driver);
// tl_cuda_thread lets this thread work on a device while another one captures a graph. All functions with a device do it.
int tl_cuda_thread(const tl_cuda *c, int device);
int tl_cuda_count(const tl_cuda *c, int *n);
int tl_cuda_name(const tl_cuda *c, int device, char *name, int max);
int tl_cuda_stream(const tl_cuda *c, int device, int priority, uintptr_t *stream);
int tl_cuda_stream_free(const tl_cuda *c, int device, uintptr_t stream);
int tl_cuda_sync(const tl_cuda *c, int device, uintptr_t stream);
int tl_cuda_malloc(const tl_cuda *c, int device, size_t n, uintptr_t *p);
int tl_cuda_free(const tl_cuda *c, int device, uintptr_t p);
int tl_cuda_malloc_host(const tl_cuda *c, int device, size_t n, uintptr_t *p);
int tl_cuda_free_host(const tl_cuda *c, int device, uintptr_t p);
int tl_cuda_mem_info(const tl_cuda *c, int device, size_t *free, size_t *total);
int tl_cuda_last_error(const tl_cuda *c);
// tl_cuda_begin_capture is cudaStreamBeginCapture with the mode of a thread (cudaStreamCaptureModeThreadLocal) in place of the global one.
int tl_cuda_begin_capture(void *stream, int mode);
// tl_cuda_abandon_capture takes a stream out of a graph capture that an error left open, from the thread that began it.
void tl_cuda_abandon_capture(const tl_cuda *c, uintptr_t stream);
const char *tl_cuda_error_name(const tl_cuda *c, int code);
const char *tl_cuda_error_text(const tl_cuda *c, int code);

// tl_box is where planes of rows are: rows are row bytes apart, planes all rows.
typedef struct {
  uintptr_t at;
  size_t row, all;
} tl_box;

// Copies: c NULL means the CPU, where they are done on return. kind: 1 host to device, 2 device to host, 3 device to device.
int tl_copy(const tl_cuda *c, int device, uintptr_t dst, uintptr_t src, size_t n, int kind, uintptr_t stream);
// tl_copy_rows copies rows of n bytes inside the device, each a step after the last one.
int tl_copy_rows(const tl_cuda *c, int device, uintptr_t dst, size_t dst_step, uintptr_t src, size_t src_step, size_t n, size_t rows,
                 uintptr_t stream);
// tl_copy_box copies planes of rows of n bytes inside the device.
int tl_copy_box(const tl_cuda *c, int device, const tl_box *dst, const tl_box *src, size_t n, size_t rows, size_t planes, uintptr_t stream);
int tl_copy_in(const tl_cuda *c, int device, uintptr_t dst, const void *src, size_t n, uintptr_t stream);
int tl_copy_out(const tl_cuda *c, int device, void *dst, uintptr_t src, size_t n, uintptr_t stream);
int tl_set(const tl_cuda *c, int device, uintptr_t dst, int value, size_t n, uintptr_t stream);

// ---- the CPU's memory ----

uintptr_t tl_malloc(size_t n);
void tl_free(uintptr_t p);
void tl_trim(void);

#endif

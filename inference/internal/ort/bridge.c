#define _GNU_SOURCE
#include "bridge.h"

#include <dlfcn.h>
#include <link.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef __GLIBC__
// Runs come from many threads, and a heap of each would keep what its largest run needed. Threads that begin before keep theirs.
__attribute__((constructor)) static void one_heap(void) { mallopt(M_ARENA_MAX, 1); }
#endif

void *tl_open(const char *path, const char **why) {
  void *h = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  *why = h ? NULL : dlerror();
  return h;
}

void *tl_symbol(void *library, const char *name) { return dlsym(library, name); }

int tl_find(const char *name, char *path, size_t max) {
  struct link_map *map = NULL;
  int found = 0;
  void *h = dlopen(name, RTLD_LAZY);
  if (!h) return 0;
  if (!dlinfo(h, RTLD_DI_LINKMAP, &map) && strlen(map->l_name) < max) {
    strcpy(path, map->l_name);
    found = 1;
  }
  dlclose(h);
  return found;
}

typedef const OrtApiBase *(*base_fn)(void);

const char *tl_version(void *get_api_base) { return ((base_fn)get_api_base)()->GetVersionString(); }

const OrtApi *tl_api(void *get_api_base, uint32_t version) { return ((base_fn)get_api_base)()->GetApi(version); }

int tl_status_code(const OrtApi *a, const OrtStatus *s) { return (int)a->GetErrorCode(s); }

const char *tl_status_text(const OrtApi *a, const OrtStatus *s) { return a->GetErrorMessage(s); }

void tl_status_free(const OrtApi *a, OrtStatus *s) { a->ReleaseStatus(s); }

OrtStatus *tl_env(const OrtApi *a, OrtEnv **out) { return a->CreateEnv(ORT_LOGGING_LEVEL_FATAL, "touchline", out); }

void tl_env_free(const OrtApi *a, OrtEnv *env) { a->ReleaseEnv(env); }

OrtStatus *tl_options(const OrtApi *a, int threads, int pattern, int arena, OrtSessionOptions **out) {
  OrtStatus *s = a->CreateSessionOptions(out);
  if (s) return s;
  s = a->SetIntraOpNumThreads(*out, threads);
  if (!s) s = a->SetInterOpNumThreads(*out, 1);
  if (!s) s = pattern ? a->EnableMemPattern(*out) : a->DisableMemPattern(*out);
  if (!s) s = arena ? a->EnableCpuMemArena(*out) : a->DisableCpuMemArena(*out);
  if (s) {
    a->ReleaseSessionOptions(*out);
    *out = NULL;
  }
  return s;
}

OrtStatus *tl_options_initializer(const OrtApi *a, OrtSessionOptions *o, const char *name, const OrtValue *v) {
  return a->AddInitializer(o, name, v);
}

void tl_options_free(const OrtApi *a, OrtSessionOptions *o) { a->ReleaseSessionOptions(o); }

OrtStatus *tl_cuda_options(const OrtApi *a, OrtCUDAProviderOptionsV2 **out) { return a->CreateCUDAProviderOptions(out); }

void tl_cuda_options_free(const OrtApi *a, OrtCUDAProviderOptionsV2 *o) { a->ReleaseCUDAProviderOptions(o); }

OrtStatus *tl_cuda_options_update(const OrtApi *a, OrtCUDAProviderOptionsV2 *o, char **keys, char **values, size_t n) {
  return a->UpdateCUDAProviderOptions(o, (const char *const *)keys, (const char *const *)values, n);
}

OrtStatus *tl_options_cuda(const OrtApi *a, OrtSessionOptions *o, const OrtCUDAProviderOptionsV2 *cuda) {
  return a->SessionOptionsAppendExecutionProvider_CUDA_V2(o, cuda);
}

OrtStatus *tl_cuda_stream_option(const OrtApi *a, OrtCUDAProviderOptionsV2 *o, uintptr_t stream) {
  return a->UpdateCUDAProviderOptionsWithValue(o, "user_compute_stream", (void *)stream);
}

OrtStatus *tl_session(const OrtApi *a, const OrtEnv *env, const char *path, const OrtSessionOptions *o, OrtSession **out) {
  return a->CreateSession(env, path, o, out);
}

void tl_session_free(const OrtApi *a, OrtSession *s) { a->ReleaseSession(s); }

OrtStatus *tl_session_count(const OrtApi *a, const OrtSession *s, int output, size_t *out) {
  return output ? a->SessionGetOutputCount(s, out) : a->SessionGetInputCount(s, out);
}

OrtStatus *tl_session_value(const OrtApi *a, const OrtSession *s, int output, size_t i, char **name, OrtTypeInfo **info) {
  OrtAllocator *alloc;
  OrtStatus *st = a->GetAllocatorWithDefaultOptions(&alloc);
  *name = NULL;
  *info = NULL;
  if (st) return st;
  st = output ? a->SessionGetOutputName(s, i, alloc, name) : a->SessionGetInputName(s, i, alloc, name);
  if (st) return st;
  return output ? a->SessionGetOutputTypeInfo(s, i, info) : a->SessionGetInputTypeInfo(s, i, info);
}

OrtStatus *tl_type_info_tensor(const OrtApi *a, const OrtTypeInfo *info, const OrtTensorTypeAndShapeInfo **out) {
  return a->CastTypeInfoToTensorInfo(info, out);
}

void tl_type_info_free(const OrtApi *a, OrtTypeInfo *info) { a->ReleaseTypeInfo(info); }

OrtStatus *tl_string_free(const OrtApi *a, char *s) {
  OrtAllocator *alloc;
  OrtStatus *st = a->GetAllocatorWithDefaultOptions(&alloc);
  return st ? st : a->AllocatorFree(alloc, s);
}

OrtStatus *tl_tensor_info(const OrtApi *a, const OrtTensorTypeAndShapeInfo *t, int *type, size_t *rank) {
  ONNXTensorElementDataType e;
  OrtStatus *st = a->GetTensorElementType(t, &e);
  if (st) return st;
  *type = (int)e;
  return a->GetDimensionsCount(t, rank);
}

OrtStatus *tl_tensor_dims(const OrtApi *a, const OrtTensorTypeAndShapeInfo *t, int64_t *dims, size_t rank) {
  return a->GetDimensions(t, dims, rank);
}

OrtStatus *tl_memory_info(const OrtApi *a, int cuda, int index, OrtMemoryInfo **out) {
  return a->CreateMemoryInfo(cuda ? "Cuda" : "Cpu", OrtDeviceAllocator, index, OrtMemTypeDefault, out);
}

void tl_memory_info_free(const OrtApi *a, OrtMemoryInfo *m) { a->ReleaseMemoryInfo(m); }

OrtStatus *tl_value(const OrtApi *a, const OrtMemoryInfo *m, uintptr_t data, size_t bytes, const int64_t *dims, size_t rank,
                    int type, OrtValue **out) {
  return a->CreateTensorWithDataAsOrtValue(m, (void *)data, bytes, dims, rank, (ONNXTensorElementDataType)type, out);
}

void tl_value_free(const OrtApi *a, OrtValue *v) { a->ReleaseValue(v); }

OrtStatus *tl_binding(const OrtApi *a, OrtSession *s, OrtIoBinding **out) { return a->CreateIoBinding(s, out); }

void tl_binding_free(const OrtApi *a, OrtIoBinding *b) { a->ReleaseIoBinding(b); }

OrtStatus *tl_bind(const OrtApi *a, OrtIoBinding *b, int output, const char *name, const OrtValue *v) {
  return output ? a->BindOutput(b, name, v) : a->BindInput(b, name, v);
}

OrtStatus *tl_run_options(const OrtApi *a, OrtRunOptions **out) { return a->CreateRunOptions(out); }

void tl_run_options_free(const OrtApi *a, OrtRunOptions *o) { a->ReleaseRunOptions(o); }

OrtStatus *tl_run_options_set(const OrtApi *a, OrtRunOptions *o, const char *key, const char *value) {
  return a->AddRunConfigEntry(o, key, value);
}

OrtStatus *tl_run_options_terminate(const OrtApi *a, OrtRunOptions *o, int on) {
  return on ? a->RunOptionsSetTerminate(o) : a->RunOptionsUnsetTerminate(o);
}

OrtStatus *tl_run(const OrtApi *a, OrtSession *s, const OrtRunOptions *o, const OrtIoBinding *b) { return a->RunWithBinding(s, o, b); }

static int (*begin_capture)(void *stream, int mode);

const char *tl_cuda_bind(tl_cuda *c, void *runtime, void *driver) {
  struct {
    void **to;
    const char *name;
  } want[] = {
      {(void **)&c->set_device, "cudaSetDevice"},
      {(void **)&c->capture_mode, "cudaThreadExchangeStreamCaptureMode"},
      {(void **)&c->device_count, "cudaGetDeviceCount"},
      {(void **)&c->stream_create, "cudaStreamCreateWithPriority"},
      {(void **)&c->stream_destroy, "cudaStreamDestroy"},
      {(void **)&c->stream_sync, "cudaStreamSynchronize"},
      {(void **)&c->malloc, "cudaMalloc"},
      {(void **)&c->free, "cudaFree"},
      {(void **)&c->malloc_host, "cudaHostAlloc"},
      {(void **)&c->free_host, "cudaFreeHost"},
      {(void **)&c->copy, "cudaMemcpyAsync"},
      {(void **)&c->copy_rows, "cudaMemcpy2DAsync"},
      {(void **)&c->copy_box, "cudaMemcpy3DAsync"},
      {(void **)&c->set, "cudaMemsetAsync"},
      {(void **)&c->mem_info, "cudaMemGetInfo"},
      {(void **)&begin_capture, "cudaStreamBeginCapture"},
      {(void **)&c->end_capture, "cudaStreamEndCapture"},
      {(void **)&c->graph_destroy, "cudaGraphDestroy"},
      {(void **)&c->last_error, "cudaGetLastError"},
      {(void **)&c->error_name, "cudaGetErrorName"},
      {(void **)&c->error_text, "cudaGetErrorString"},
  };
  for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
    if (!(*want[i].to = dlsym(runtime, want[i].name))) return want[i].name;
  }
  *(void **)&c->driver_name = driver ? dlsym(driver, "cuDeviceGetName") : NULL;
  return NULL;
}

int tl_cuda_count(const tl_cuda *c, int *n) { return c->device_count(n); }

int tl_cuda_name(const tl_cuda *c, int device, char *name, int max) { return c->driver_name ? c->driver_name(name, max, device) : 1; }

int tl_cuda_begin_capture(void *stream, int mode) { return begin_capture(stream, mode ? mode : 1); }

// A capture of another library in global mode would refuse this thread's allocations and copies, and then end. It does neither for threads
// whose own mode is that of a thread (cudaStreamCaptureModeThreadLocal).
int tl_cuda_thread(const tl_cuda *c, int device) {
  static __thread int ready;
  int mode = 1, e = c->set_device(device);
  if (!e && !ready) ready = c->capture_mode(&mode) == 0;
  return e;
}

// Go's threads change under every call, and the current device is a thread's.
#define ON(device)                       \
  do {                                   \
    int e_ = tl_cuda_thread(c, device);  \
    if (e_) return e_;                   \
  } while (0)

int tl_cuda_stream(const tl_cuda *c, int device, int priority, uintptr_t *stream) {
  void *s = NULL;
  ON(device);
  int e = c->stream_create(&s, 1, priority);  // cudaStreamNonBlocking: does not wait for the legacy stream
  *stream = (uintptr_t)s;
  return e;
}

int tl_cuda_stream_free(const tl_cuda *c, int device, uintptr_t stream) {
  ON(device);
  return c->stream_destroy((void *)stream);
}

int tl_cuda_sync(const tl_cuda *c, int device, uintptr_t stream) {
  ON(device);
  return c->stream_sync((void *)stream);
}

int tl_cuda_malloc(const tl_cuda *c, int device, size_t n, uintptr_t *p) {
  void *v = NULL;
  ON(device);
  int e = c->malloc(&v, n);
  *p = (uintptr_t)v;
  return e;
}

int tl_cuda_free(const tl_cuda *c, int device, uintptr_t p) {
  ON(device);
  return c->free((void *)p);
}

int tl_cuda_malloc_host(const tl_cuda *c, int device, size_t n, uintptr_t *p) {
  void *v = NULL;
  ON(device);
  int e = c->malloc_host(&v, n, 0);
  *p = (uintptr_t)v;
  return e;
}

int tl_cuda_free_host(const tl_cuda *c, int device, uintptr_t p) {
  ON(device);
  return c->free_host((void *)p);
}

int tl_cuda_mem_info(const tl_cuda *c, int device, size_t *free, size_t *total) {
  ON(device);
  return c->mem_info(free, total);
}

int tl_cuda_last_error(const tl_cuda *c) { return c->last_error(); }

void tl_cuda_abandon_capture(const tl_cuda *c, uintptr_t stream) {
  void *graph = NULL;
  c->end_capture((void *)stream, &graph);
  if (graph) c->graph_destroy(graph);
  c->last_error();
}

const char *tl_cuda_error_name(const tl_cuda *c, int code) { return c->error_name(code); }

const char *tl_cuda_error_text(const tl_cuda *c, int code) { return c->error_text(code); }

int tl_copy(const tl_cuda *c, int device, uintptr_t dst, uintptr_t src, size_t n, int kind, uintptr_t stream) {
  if (!c) {
    memmove((void *)dst, (const void *)src, n);
    return 0;
  }
  ON(device);
  return c->copy((void *)dst, (const void *)src, n, kind, (void *)stream);
}

int tl_copy_rows(const tl_cuda *c, int device, uintptr_t dst, size_t dst_step, uintptr_t src, size_t src_step, size_t n, size_t rows,
                 uintptr_t stream) {
  if (!c) {
    for (size_t i = 0; i < rows; i++) memmove((void *)(dst + i * dst_step), (const void *)(src + i * src_step), n);
    return 0;
  }
  ON(device);
  return c->copy_rows((void *)dst, dst_step, (const void *)src, src_step, n, rows, 3, (void *)stream);
}

int tl_copy_box(const tl_cuda *c, int device, const tl_box *dst, const tl_box *src, size_t n, size_t rows, size_t planes, uintptr_t stream) {
  if (!c) {
    for (size_t i = 0; i < planes * rows; i++)
      memmove((void *)(dst->at + (i / rows * dst->all + i % rows) * dst->row), (const void *)(src->at + (i / rows * src->all + i % rows) * src->row), n);
    return 0;
  }
  struct side { // of cudaMemcpy3DParms
    void *array;
    size_t position[3];
    struct {
      void *at;
      size_t row, width, all;
    } box;
  };
  struct {
    struct side src, dst;
    size_t width, height, depth;
    int kind;
  } copy = {{0, {0}, {(void *)src->at, src->row, n, src->all}}, {0, {0}, {(void *)dst->at, dst->row, n, dst->all}}, n, rows, planes, 3};
  ON(device);
  return c->copy_box(&copy, (void *)stream);
}

// cudaMemcpyDefault: the addresses tell which way. A Pointer may be host memory as well.
#define TL_COPY_ANY 4

int tl_copy_in(const tl_cuda *c, int device, uintptr_t dst, const void *src, size_t n, uintptr_t stream) {
  return tl_copy(c, device, dst, (uintptr_t)src, n, TL_COPY_ANY, stream);
}

int tl_copy_out(const tl_cuda *c, int device, void *dst, uintptr_t src, size_t n, uintptr_t stream) {
  return tl_copy(c, device, (uintptr_t)dst, src, n, TL_COPY_ANY, stream);
}

// zero gives whole pages back to the kernel, which clears them when they are used: much of a cache never is.
static void zero(char *p, size_t n) {
#ifdef __linux__
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  size_t head = -(uintptr_t)p % page;
  if (n >= head + 16 * page) {
    size_t whole = (n - head) / page * page;
    if (!madvise(p + head, whole, MADV_DONTNEED)) {
      memset(p, 0, head);
      memset(p + head + whole, 0, n - head - whole);
      return;
    }
  }
#endif
  memset(p, 0, n);
}

int tl_set(const tl_cuda *c, int device, uintptr_t dst, int value, size_t n, uintptr_t stream) {
  if (!c) {
    if (value) memset((void *)dst, value, n);
    else zero((char *)dst, n);
    return 0;
  }
  ON(device);
  return c->set((void *)dst, value, n, (void *)stream);
}

uintptr_t tl_malloc(size_t n) {
  void *p = NULL;
  // 256 bytes, as cudaMalloc gives.
  if (posix_memalign(&p, 256, n ? n : 1)) return 0;
  return (uintptr_t)p;
}

void tl_free(uintptr_t p) { free((void *)p); }

void tl_trim(void) {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

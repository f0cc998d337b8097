// One decode step of a Qwen3 language model for up to eight rows (rooms), in one persistent kernel.
//
// Every step reads all weights once, so that memory traffic is the limit: an 8B model with a vocabulary matrix of 4 bits is 4.4 GB a step.
// Each warp streams its share of the weights through a ring in shared memory by asynchronous copies, in the order of use. Weights depend
// on nothing, so that the ring fills while the blocks wait for each other between two stages of a layer. The stages are:
//
//	qkv      RMSNorm, then the stacked projections of queries, keys and values
//	attend   norm and rotation of queries and the new key, the write of key and value to the cache, attention in
//	         splits of a row's positions; the last split to end merges them
//	o        output projection, plus the residual
//	gate_up  RMSNorm, gate and up, silu(gate)*up
//	down     plus the residual
//	head     the last norm and the vocabulary matrix
//
// Weights multiply a step's rows as tensor core products of 16 outputs, 16 inputs and 8 rows, which accumulate in float32; the sums of a
// block are then multiplied by its scale. The sums of the warps are added in a fixed order: equal inputs give equal bits.
//
// Tried on an H200 without gain: a flag of each block instead of one counter (12 % slower), prefetch hints for L2 (2 %), rings of 5 units (8 %)
// and of 3 (9 %), the places of streams in shared memory, attention as a function of its own.
//
// Needs sm_80. The shapes are macros (see Shape in decode.go), and so is all that depends on the card. No header is included.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define QKV ((HEADS + 2 * KV_HEADS) * HEAD_DIM)
#define ATT (HEADS * HEAD_DIM)
#define GROUP (HEADS / KV_HEADS)
#define THREADS (WARPS * 32)
#define TILE 16                   // outputs of a product
#define UNIT 128                  // inputs of a unit of 4 bits, the weights that a warp copies and multiplies at a time
#define ROW_BYTES 64              // of a unit's row
#define SLOT (2 * TILE * (ROW_BYTES + 8)) // of the ring: two tiles with their scales
#define PASS (HIDDEN > ATT ? HIDDEN : ATT) // inputs in shared memory at a time
#define COLUMN (PASS * 2 + 64)    // bytes of a row there; the padding separates banks
#define PARTS (WARPS + 1)         // of a sum; one is padding
#define SUMS (2 * TILE * ROWS * PARTS) // of a group
#define BUFFERS (ROWS > 4 ? 1 : 2) // of sums
#define CHUNK (8 * WARPS)         // positions of a split at most

struct Matrix {
  const u8 *quants;  // [N][K/2], low nibble first, or [N][K] for 8 bits
  const u16 *scales; // float16 [N][K/32]
};

struct Layer {
  Matrix qkv, o, gate_up, down;
  const u16 *norm, *ffn_norm, *q_norm, *k_norm;
  u16 *keys, *values; // [slot][KV_HEADS][max_len][HEAD_DIM]
};

struct Step {
  const Layer *layers;
  Matrix head;
  const u16 *last_norm, *cos, *sin; // [position][HEAD_DIM/2]
  const int *table;                 // [ROWS] slots, -1 without one, then [ROWS] lengths
  const u16 *fed;                   // [slot][HIDDEN]
  u16 *residual, *qkv, *attended, *gated; // [ROWS][...]
  float *parts;                     // [ROWS][KV_HEADS][SPLITS][GROUP][HEAD_DIM+2]
  u32 *counters;                    // [0] arrivals, [1] finished launches, then [ROWS][KV_HEADS]
  float *logits;                    // [slot][VOCAB]
  u16 *hidden;                      // [slot][HIDDEN]
  int max_len;
};

// ---- half precision without headers ----

__device__ __forceinline__ float wide(u16 h) { float f; asm("cvt.f32.f16 %0,%1;" : "=f"(f) : "h"(h)); return f; }
__device__ __forceinline__ u16 narrow(float f) { u16 h; asm("cvt.rn.f16.f32 %0,%1;" : "=h"(h) : "f"(f)); return h; }
__device__ __forceinline__ u32 narrow2(float low, float high) { u32 r; asm("cvt.rn.f16x2.f32 %0,%1,%2;" : "=r"(r) : "f"(high), "f"(low)); return r; }
__device__ __forceinline__ u32 mul2(u32 a, u32 b) { u32 r; asm("mul.f16x2 %0,%1,%2;" : "=r"(r) : "r"(a), "r"(b)); return r; }

// ---- memory ----

// Data that other blocks wrote during this launch is read from L2: L1 may have an older copy.
__device__ __forceinline__ uint4 fresh16(const void *p) { uint4 v; asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory"); return v; }
__device__ __forceinline__ u16 fresh2(const u16 *p) { u16 v; asm volatile("ld.global.cg.u16 %0,[%1];" : "=h"(v) : "l"(p) : "memory"); return v; }
__device__ __forceinline__ float fresh4(const float *p) { float v; asm volatile("ld.global.cg.f32 %0,[%1];" : "=f"(v) : "l"(p) : "memory"); return v; }
__device__ __forceinline__ u32 shared_at(const void *p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void copy16(u32 to, const void *from) { asm volatile("cp.async.cg.shared.global [%0],[%1],16;" ::"r"(to), "l"(from)); }
__device__ __forceinline__ void copy8(u32 to, const void *from) { asm volatile("cp.async.ca.shared.global [%0],[%1],8;" ::"r"(to), "l"(from)); }
__device__ __forceinline__ void copy4(u32 to, const void *from) { asm volatile("cp.async.ca.shared.global [%0],[%1],4;" ::"r"(to), "l"(from)); }
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__device__ __forceinline__ void await_oldest() { asm volatile("cp.async.wait_group %0;" ::"n"(DEPTH - 1) : "memory"); }
__device__ __forceinline__ u32 shared4(u32 at) { u32 v; asm volatile("ld.shared.u32 %0,[%1];" : "=r"(v) : "r"(at)); return v; }
__device__ __forceinline__ uint2 shared8(u32 at) { uint2 v; asm volatile("ld.shared.v2.u32 {%0,%1},[%2];" : "=r"(v.x), "=r"(v.y) : "r"(at)); return v; }
__device__ __forceinline__ uint4 shared16(u32 at) { uint4 v; asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at)); return v; }
__device__ __forceinline__ void store16(u32 at, uint4 v) { asm volatile("st.shared.v4.u32 [%0],{%1,%2,%3,%4};" ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory"); }

__device__ __forceinline__ float sum_of_warp(float v) {
#pragma unroll
  for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
  return v;
}

// Shared memory: the ring, then the inputs, what is added for each block of 32 inputs, and the sums of the warps, or what attention needs.
extern __shared__ __align__(128) u8 memory[];
#define INPUTS (memory + WARPS * DEPTH * SLOT)
#define OFFSETS ((float *)(INPUTS + ROWS * COLUMN)) // [PASS/32][8]
#define TOTALS (OFFSETS + PASS / 4)
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define ATTEND ((GROUP + 2) * HEAD_DIM * 2 + CHUNK * GROUP * 4 + WARPS * GROUP * HEAD_DIM * 4 + 1024)
static_assert(WARPS * DEPTH * SLOT + LARGER(ROWS * COLUMN + PASS + BUFFERS * SUMS * 4, ATTEND) <= SHARED, "planFor gives too little");
static_assert(SPLITS <= WARPS * HEAD_DIM, "the factors of splits take the place of sums");

// Barrier waits for all blocks of the grid. Arrivals are counted over all launches.
struct Barrier {
  u32 *count;
  u32 target;
  __device__ void arrive() {
    __syncthreads();
    target += gridDim.x;
    if (threadIdx.x == 0) asm volatile("red.release.gpu.global.add.u32 [%0],1;" ::"l"(count) : "memory");
  }
  __device__ void wait() {
    if (threadIdx.x == 0) {
      u32 seen;
      do asm volatile("ld.acquire.gpu.global.u32 %0,[%1];" : "=r"(seen) : "l"(count) : "memory");
      while ((int)(seen - target) < 0);
    }
    __syncthreads();
  }
};

// The kinds of matrices, in the order of a layer.
enum { kQKV, kO, kGateUp, kDown, kHead };

template <int KIND> struct Kind {
  static const int n = KIND == kQKV ? QKV : KIND == kGateUp ? 2 * FFN : KIND == kHead ? VOCAB : HIDDEN;
  static const int k = KIND == kO ? ATT : KIND == kDown ? FFN : HIDDEN;
  static const int bits = KIND == kHead ? HEAD_BITS : 4;
  static const int tiles = KIND == kGateUp || KIND == kHead ? 2 : KIND == kQKV ? QKV_TILES : O_TILES; // of a group
  static const int unit = UNIT * 4 / bits;                    // inputs
  static const int groups = KIND == kGateUp ? FFN / TILE : (n + tiles * TILE - 1) / (tiles * TILE);
  static const int passes = (k + PASS - 1) / PASS;
  static __device__ int inputs(int pass) { return passes == 1 ? k : min(PASS, k - pass * PASS); }
  // Each warp has some neighbouring units of a pass.
  static __device__ int share(int pass) { return (inputs(pass) / unit + WARPS - 1) / WARPS; }
  static __device__ int first(int pass, int warp) { return min(warp * share(pass), inputs(pass) / unit); }
  static __device__ int end(int pass, int warp) { return min((warp + 1) * share(pass), inputs(pass) / unit); }
  static const int apart = KIND == kGateUp ? FFN : TILE; // first outputs of its tiles
  // The last group of outputs that are no multiple repeats some of the one before.
  static __device__ int output(int group) { return KIND == kGateUp ? group * TILE : min(group * tiles * TILE, n - tiles * TILE); }
};

// copy_unit queues the copy of a unit to a slot of the ring: 64 bytes of each of 16 rows of a tile or two, in pieces of 16 bytes whose order
// lets eight rows use all banks; then their scales, 8 bytes a row (4 for 8 bits).
template <int KIND> __device__ __forceinline__ void copy_unit(const Matrix &m, int group, int input, u32 slot) {
  typedef Kind<KIND> K;
  const int row_bytes = K::k * K::bits / 8, lane = threadIdx.x & 31, output = K::output(group);
  const u8 *from = m.quants + (u64)(output + (lane >> 2)) * row_bytes + input * K::bits / 8 + (lane & 3) * 16;
  u32 to = slot + (lane >> 2) * ROW_BYTES + ((lane ^ lane >> 3) & 3) * 16;
#pragma unroll
  for (int j = 0; j < 2 * K::tiles; j++) copy16(to + j * 8 * ROW_BYTES, from + ((u64)(j >> 1) * K::apart + (j & 1) * 8) * row_bytes);
  if (lane < K::tiles * TILE) {
    u32 to_scales = slot + K::tiles * TILE * ROW_BYTES + lane * 8;
    const u16 *scales = m.scales + (u64)(output + lane / TILE * K::apart + lane % TILE) * (K::k / 32) + input / 32;
    if (K::bits == 4) copy8(to_scales, scales);
    else copy4(to_scales, scales);
  }
}

// Stream is a warp's place in the weights of the whole step, in the order of use.
struct Stream {
  const Step &s;
  int matrix, group, pass, unit, slot;
  Matrix m;
  u32 ring;

  __device__ Stream(const Step &step) : s(step), matrix(-1), slot(0) {
    ring = shared_at(memory) + (threadIdx.x >> 5) * DEPTH * SLOT;
    next_matrix();
  }

  // settle goes to the next pass or group of the matrix with a unit for this warp, and reports whether there is one.
  template <int KIND> __device__ __forceinline__ bool settle() {
    typedef Kind<KIND> K;
    const int warp = threadIdx.x >> 5;
    while (unit >= K::end(pass, warp)) {
      if (++pass == K::passes) {
        pass = 0, group += gridDim.x;
        if (group >= K::groups) return false;
      }
      unit = K::first(pass, warp);
      if (K::passes == 1 && unit >= K::end(0, warp)) return false;
    }
    return true;
  }

  template <int KIND> __device__ __forceinline__ bool begin(const Matrix &of) {
    m = of;
    group = blockIdx.x, pass = 0, unit = Kind<KIND>::first(0, threadIdx.x >> 5);
    return group < Kind<KIND>::groups && settle<KIND>();
  }

  __device__ __forceinline__ void next_matrix() {
    for (matrix++; matrix < 4 * LAYERS; matrix++) {
      const Layer &l = s.layers[matrix / 4];
      bool any;
      switch (matrix % 4) {
      case kQKV: any = begin<kQKV>(l.qkv); break;
      case kO: any = begin<kO>(l.o); break;
      case kGateUp: any = begin<kGateUp>(l.gate_up); break;
      default: any = begin<kDown>(l.down);
      }
      if (any) return;
    }
    if (matrix == 4 * LAYERS && !begin<kHead>(s.head)) matrix++;
  }

  template <int KIND> __device__ __forceinline__ bool copy(u32 to) {
    copy_unit<KIND>(m, group, pass * PASS + unit * Kind<KIND>::unit, to);
    unit++;
    return settle<KIND>();
  }

  // fill queues the copy of the next unit to the slot at hand; nothing at the end.
  __device__ __forceinline__ void fill() {
    if (matrix <= 4 * LAYERS) {
      u32 to = ring + slot * SLOT;
      bool more;
      if (matrix == 4 * LAYERS) more = copy<kHead>(to);
      else
        switch (matrix % 4) {
        case kQKV: more = copy<kQKV>(to); break;
        case kO: more = copy<kO>(to); break;
        case kGateUp: more = copy<kGateUp>(to); break;
        default: more = copy<kDown>(to);
        }
      if (!more) next_matrix();
    }
    commit();
    slot = slot + 1 == DEPTH ? 0 : slot + 1;
  }
};

__device__ __forceinline__ void product(float *d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// nibbles turns eight of them into halves of 1024 plus the nibbles (0,4) and (2,6), and 1024 plus 16 times (1,5) and (3,7): 0x6400 is 1024
// as a half, whose last bits count ones. The inputs of the odd ones are divided by 16, and place adds what is too much to OFFSETS.
__device__ __forceinline__ void nibbles(u32 q, u32 *out) {
  const u32 kilo = 0x64006400;
  u32 r = q >> 8;
  out[0] = (q & 0x000f000f) | kilo, out[1] = (q & 0x00f000f0) | kilo;
  out[2] = (r & 0x000f000f) | kilo, out[3] = (r & 0x00f000f0) | kilo;
}

__device__ __forceinline__ void both(u32 h, float &low, float &high) {
  asm("{.reg .b16 l,h; mov.b32 {l,h},%2; cvt.f32.f16 %0,l; cvt.f32.f16 %1,h;}" : "=f"(low), "=f"(high) : "r"(h));
}

// scaled adds a block's sums, each output's times its scale.
__device__ __forceinline__ void scaled(float *acc, const float *one, float s0, float s1) {
  acc[0] += s0 * one[0], acc[2] += s1 * one[2];
  if (ROWS > 1) acc[1] += s0 * one[1], acc[3] += s1 * one[3];
}

// multiply adds the products of a unit with the rows to acc: outputs g and g+8 of each tile, rows 2t and 2t+1, for lane 4g+t. block is
// the unit's first block of 32 inputs.
template <int KIND> __device__ __forceinline__ void multiply(float (*acc)[4], u32 slot, int block) {
  typedef Kind<KIND> K;
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const u32 x = shared_at(INPUTS) + g * COLUMN + t * 16 + block * 64;
  const u32 offsets = shared_at(OFFSETS) + block * 32 + (ROWS > 1 ? t * 8 : 0);
  const u32 words = slot + g * ROW_BYTES + t * 4, turned = (g >> 1 & 3) * 16, scales = slot + K::tiles * TILE * ROW_BYTES + g * 8;
  uint2 raw[K::tiles][2];
#pragma unroll
  for (int i = 0; i < K::tiles; i++)
#pragma unroll
    for (int h = 0; h < 2; h++) raw[i][h] = shared8(scales + (i * TILE + h * 8) * 8);
#pragma unroll
  for (int b = 0; b < K::unit / 32; b++) {
    uint4 v = make_uint4(0, 0, 0, 0);
    if (g < ROWS) v = shared16(x + b * 64);
    float o0, o1; // shared memory's bandwidth counts: one row needs one number
    if (ROWS == 1) o0 = o1 = __uint_as_float(shared4(offsets + b * 32));
    else {
      uint2 o = shared8(offsets + b * 32);
      o0 = __uint_as_float(o.x), o1 = __uint_as_float(o.y);
    }
#pragma unroll
    for (int i = 0; i < K::tiles; i++) {
      float d[4] = {o0, o1, o0, o1};
      if constexpr (K::bits == 4) {
        u32 a[4], c[4], at = words + (turned ^ b * 16) + i * TILE * ROW_BYTES;
        nibbles(shared4(at), a);
        nibbles(shared4(at + 8 * ROW_BYTES), c);
        product(d, a[0], c[0], a[1], c[1], v.x, v.y);
        product(d, a[2], c[2], a[3], c[3], v.z, v.w);
      } else {
#pragma unroll
        for (int h = 0; h < 2; h++) {
          u32 at = words + (turned ^ (b * 2 + h) * 16) + i * TILE * ROW_BYTES, p = shared4(at), q = shared4(at + 8 * ROW_BYTES);
          const u32 kilo = 0x64646464;
          product(d, __byte_perm(p, kilo, 0x4140), __byte_perm(q, kilo, 0x4140), __byte_perm(p, kilo, 0x4342), __byte_perm(q, kilo, 0x4342),
                  h ? v.z : v.x, h ? v.w : v.y);
        }
      }
      float low0, high0, low1, high1;
      both(b < 2 ? raw[i][0].x : raw[i][0].y, low0, high0), both(b < 2 ? raw[i][1].x : raw[i][1].y, low1, high1);
      scaled(acc[i], d, b % 2 ? high0 : low0, b % 2 ? high1 : low1);
    }
  }
}

// place stores eight neighbouring inputs of a row in the order of multiply: for 4 bits (0,4), (1,5), (2,6), (3,7), the odd ones divided by
// 16. For 8 bits the lanes of a block of 32 have four inputs of each half: 4t to 4t+3, and 16 more. The block's offset takes 1024 and the
// zero point off the weights. All lanes of a warp call it; four in a row have a block.
template <int BITS> __device__ __forceinline__ void place(int row, int input, uint4 v, bool valid) {
  float a, b, even = 0, odd = 0;
  uint4 p = v;
  if constexpr (BITS == 4) {
    const u32 sixteenth = 0x2c002c00;
    p = make_uint4(__byte_perm(v.x, v.z, 0x5410), mul2(__byte_perm(v.x, v.z, 0x7632), sixteenth), __byte_perm(v.y, v.w, 0x5410),
                   mul2(__byte_perm(v.y, v.w, 0x7632), sixteenth));
  }
  both(p.x, a, b), even += a + b, both(p.y, a, b), odd += a + b;
  both(p.z, a, b), even += a + b, both(p.w, a, b), odd += a + b;
  float offset = BITS == 4 ? -1032 * even - 1152 * odd : -1152 * (even + odd);
  offset += __shfl_xor_sync(~0u, offset, 1);
  offset += __shfl_xor_sync(~0u, offset, 2);
  if (!valid) return;
  if ((threadIdx.x & 3) == 0) OFFSETS[input / 32 * 8 + row] = offset;
  u32 column = shared_at(INPUTS) + row * COLUMN;
  if constexpr (BITS == 4) store16(column + input * 2, p);
  else {
    int in = input % 32, half = in / 16, t = in % 16 / 4;
    u32 at = column + (input - in) * 2 + t * 16 + half * 8;
    asm volatile("st.shared.v2.u32 [%0],{%1,%2};" ::"r"(at), "r"(v.x), "r"(v.y) : "memory");
    asm volatile("st.shared.v2.u32 [%0],{%1,%2};" ::"r"(at + 16), "r"(v.z), "r"(v.w) : "memory");
  }
}

// load puts the inputs of a pass in shared memory, without a norm.
__device__ void load(const Step &s, const u16 *from, int stride, int count) {
  const int pieces = count / 8;
#pragma unroll ROWS
  for (int i = threadIdx.x; i < (ROWS * pieces + THREADS - 1) / THREADS * THREADS; i += THREADS) {
    int row = i / pieces, at = i % pieces * 8;
    bool valid = row < ROWS;
    uint4 v = valid && s.table[row] >= 0 ? fresh16(from + (u64)row * stride + at) : make_uint4(0, 0, 0, 0);
    place<4>(row, at, v, valid);
  }
  __syncthreads();
}

#define PIECES ((HIDDEN / 8 + THREADS - 1) / THREADS) // of 8 residuals of a thread

// Norm is a norm's weights, which are read while other blocks are waited for.
struct Norm {
  uint4 weights[PIECES];
  __device__ Norm(const u16 *from) {
#pragma unroll
    for (int j = 0; j < PIECES; j++) {
      int at = (threadIdx.x + j * THREADS) * 8;
      weights[j] = at < HIDDEN ? *(const uint4 *)(from + at) : make_uint4(0, 0, 0, 0);
    }
  }
};

// load_normed puts the residual in shared memory, after an RMSNorm: x/sqrt(mean(x^2)+EPSILON)*weight. The last norm's result is output too.
template <int BITS> __device__ void load_normed(const Step &s, bool first, const Norm &norm, u16 *hidden) {
  uint4 v[ROWS][PIECES];
  float *sums = TOTALS; // [row][warp]
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    int slot = s.table[r];
    const u16 *from = first ? s.fed + (u64)max(slot, 0) * HIDDEN : s.residual + r * HIDDEN;
#pragma unroll
    for (int j = 0; j < PIECES; j++) {
      int at = (threadIdx.x + j * THREADS) * 8;
      v[r][j] = at < HIDDEN && slot >= 0 ? fresh16(from + at) : make_uint4(0, 0, 0, 0);
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < PIECES; j++) {
      const u32 words[4] = {v[r][j].x, v[r][j].y, v[r][j].z, v[r][j].w};
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float a, b;
        both(words[i], a, b), sum += a * a + b * b;
      }
    }
    sum = sum_of_warp(sum);
    if (lane == 0) sums[r * WARPS + warp] = sum;
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    float sum = sums[r * WARPS + lane % WARPS];
#pragma unroll
    for (int d = WARPS / 2; d; d >>= 1) sum += __shfl_xor_sync(~0u, sum, d);
    float scale = rsqrtf(sum / HIDDEN + EPSILON);
#pragma unroll
    for (int j = 0; j < PIECES; j++) {
      int at = (threadIdx.x + j * THREADS) * 8;
      u32 words[4] = {v[r][j].x, v[r][j].y, v[r][j].z, v[r][j].w};
      const u32 weights[4] = {norm.weights[j].x, norm.weights[j].y, norm.weights[j].z, norm.weights[j].w};
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float a, b, c, d;
        both(words[i], a, b), both(weights[i], c, d);
        words[i] = narrow2(a * scale * c, b * scale * d);
      }
      uint4 out = make_uint4(words[0], words[1], words[2], words[3]);
      place<BITS>(r, at, out, at < HIDDEN);
      if (hidden && blockIdx.x == 0 && s.table[r] >= 0 && at < HIDDEN) *(uint4 *)(hidden + (u64)s.table[r] * HIDDEN + at) = out;
    }
  }
  __syncthreads();
}

// Group is the outputs of a group, of which WARPS lanes together have every EVERY-th.
template <int KIND> struct Group {
  typedef Kind<KIND> K;
  static const int every = THREADS / WARPS, outputs = (KIND == kGateUp ? 1 : K::tiles) * TILE * ROWS, count = (outputs + every - 1) / every;
  int group;
  u16 before[count]; // the residuals

  __device__ int number(int j) const { return threadIdx.x / WARPS + j * every; }
  __device__ int row(int j) const { return number(j) / TILE % ROWS; }
  __device__ int output(int j) const {
    int i = number(j);
    return i >= outputs ? K::n : K::output(group) + i / (TILE * ROWS) * TILE + i % TILE;
  }

  __device__ Group(const Step &s, bool first, int of) : group(of) {
    if constexpr (KIND == kO || KIND == kDown) {
#pragma unroll
      for (int j = 0; j < count; j++) {
        int n = output(j), slot = n < K::n ? s.table[row(j)] : -1;
        before[j] = slot < 0 ? 0 : fresh2(first ? s.fed + (u64)slot * HIDDEN + n : s.residual + row(j) * HIDDEN + n);
      }
    }
  }

  // finish adds the sums of the warps, and writes the outputs. Two groups in a row have different buffers.
  __device__ void finish(const Step &s, float (*acc)[4], int buffer) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    float *sums = TOTALS + buffer % BUFFERS * SUMS; // [tile][row][16][PARTS]
#pragma unroll
    for (int i = 0; i < K::tiles; i++)
#pragma unroll
      for (int c = 0; c < 4; c++)
        if (2 * t + (c & 1) < ROWS) sums[((i * ROWS + 2 * t + (c & 1)) * TILE + g + (c & 2) * 4) * PARTS + warp] = acc[i][c];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < count; j++) {
      int i = min(number(j), outputs - 1);
      float sum = sums[i * PARTS + lane % WARPS], up = KIND == kGateUp ? sums[(i + outputs) * PARTS + lane % WARPS] : 0;
#pragma unroll
      for (int d = WARPS / 2; d; d >>= 1) {
        sum += __shfl_xor_sync(~0u, sum, d);
        if (KIND == kGateUp) up += __shfl_xor_sync(~0u, up, d);
      }
      int n = output(j), r = row(j);
      if (lane % WARPS || n >= (KIND == kGateUp ? FFN : K::n) || s.table[r] < 0) continue;
      if (KIND == kQKV) s.qkv[r * QKV + n] = narrow(sum);
      if (KIND == kGateUp) s.gated[r * FFN + n] = narrow(sum / (1 + __expf(-sum)) * up);
      if (KIND == kHead) s.logits[(u64)s.table[r] * VOCAB + n] = sum;
      if (KIND == kO || KIND == kDown) s.residual[r * HIDDEN + n] = narrow(wide(before[j]) + sum);
    }
    if (BUFFERS == 1) __syncthreads();
  }
};

// run multiplies a matrix with the inputs.
template <int KIND> __device__ void run(const Step &s, int layer, Stream &stream, const u16 *from) {
  typedef Kind<KIND> K;
  const int warp = threadIdx.x >> 5;
  for (int group = blockIdx.x, n = 0; group < K::groups; group += gridDim.x, n++) {
    Group<KIND> outputs(s, KIND == kO && layer == 0, group);
    float acc[K::tiles][4] = {};
    for (int pass = 0; pass < K::passes; pass++) {
      if (K::passes > 1) {
        if (pass || n) __syncthreads();
        load(s, from + pass * PASS, K::k, K::inputs(pass));
      }
      for (int unit = K::first(pass, warp); unit < K::end(pass, warp); unit++) {
        await_oldest();
        __syncwarp();
        multiply<KIND>(acc, stream.ring + stream.slot * SLOT, unit * (K::unit / 32));
        __syncwarp();
        stream.fill();
      }
    }
    outputs.finish(s, acc, n);
  }
}

// Splits are the pieces of the rows' positions that one block attends to.
struct Splits {
  int size, all; // positions of one; splits of all rows and key heads
  __device__ Splits(const Step &s) {
    int positions = 0;
    for (int r = 0; r < ROWS; r++)
      if (s.table[r] >= 0) positions += s.table[ROWS + r] + 1;
    size = min(max((positions * KV_HEADS + (int)gridDim.x - 1) / (int)gridDim.x, 32), CHUNK);
    size = (size + 7) / 8 * 8, all = 0;
    for (int r = 0; r < ROWS; r++) all += of(s, r) * KV_HEADS;
  }
  __device__ int of(const Step &s, int row) const { return s.table[row] < 0 ? 0 : (s.table[ROWS + row] + size) / size; }
};

// Attention is the work of a block on one split of a row's positions, for the query heads of one key head.
struct Attention {
  static const int pieces = HEAD_DIM / 8;             // of 8 values of a position
  static const int at_once = THREADS / pieces;        // positions whose values the block multiplies
  int row, head, split, count, from, to, length;      // positions [from, to); length is the new one
  u16 *new_keys, *new_values;                         // of the row's slot and the head
  uint4 keys[HEAD_DIM / 32], values[HEAD_DIM / 32];   // a thread's old ones: position g of its warp's 8, every fourth piece; a piece of some

  // The old keys and values depend on no other block.
  __device__ Attention(const Step &s, const Layer &l, const Splits &splits, int i) : row(0) {
    while (i >= splits.of(s, row) * KV_HEADS) i -= splits.of(s, row) * KV_HEADS, row++;
    count = splits.of(s, row), head = i / count, split = i % count, length = s.table[ROWS + row];
    from = split * splits.size, to = min(from + splits.size, length + 1);
    u64 base = ((u64)s.table[row] * KV_HEADS + head) * s.max_len * HEAD_DIM;
    new_keys = l.keys + base, new_values = l.values + base;
    const int lane = threadIdx.x & 31, position = from + (threadIdx.x >> 5) * 8 + (lane >> 2), old = min(to, length);
#pragma unroll
    for (int j = 0; j < HEAD_DIM / 32; j++) {
      keys[j] = position < old ? *(const uint4 *)(new_keys + (u64)position * HEAD_DIM + j * 32 + (lane & 3) * 8) : make_uint4(0, 0, 0, 0);
      int p = from + threadIdx.x / pieces + j * at_once;
      values[j] = p < old ? *(const uint4 *)(new_values + (u64)p * HEAD_DIM + threadIdx.x % pieces * 8) : make_uint4(0, 0, 0, 0);
    }
  }

  // turn norms a head's values and rotates them by the new position, where halves are pairs, for a warp.
  __device__ __forceinline__ void turn(const u16 *head_values, const u16 *norm, const Step &s, u16 *out) const {
    const int half = HEAD_DIM / 2, per = (half + 31) / 32, lane = threadIdx.x & 31;
    float a[per], b[per], sum = 0;
#pragma unroll
    for (int j = 0; j < per; j++) {
      int d = lane + j * 32;
      a[j] = d < half ? wide(fresh2(head_values + d)) : 0, b[j] = d < half ? wide(fresh2(head_values + half + d)) : 0;
      sum += a[j] * a[j] + b[j] * b[j];
    }
    float scale = rsqrtf(sum_of_warp(sum) / HEAD_DIM + EPSILON);
#pragma unroll
    for (int j = 0; j < per; j++) {
      int d = lane + j * 32;
      if (d >= half) continue;
      float x = a[j] * scale * wide(norm[d]), y = b[j] * scale * wide(norm[half + d]);
      float c = wide(s.cos[length * half + d]), n = wide(s.sin[length * half + d]);
      out[d] = narrow(x * c - y * n), out[half + d] = narrow(y * c + x * n);
    }
  }

  __device__ __forceinline__ void run(const Step &s, const Layer &l) {
    const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, g = lane >> 2, t = lane & 3;
    u16 *query = (u16 *)INPUTS, *fresh = query + GROUP * HEAD_DIM; // [GROUP][HEAD_DIM]; the new key and value
    float *scores = (float *)(fresh + 2 * HEAD_DIM);               // [CHUNK][GROUP]
    float *sums = scores + CHUNK * GROUP;                          // [WARPS][GROUP][HEAD_DIM]
    float *largest = sums + WARPS * GROUP * HEAD_DIM, *total = largest + GROUP;
    u32 *seen = (u32 *)(total + GROUP);
    const u16 *qkv = s.qkv + row * QKV;
    const bool newest = to == length + 1;
    if (warp < GROUP) turn(qkv + (head * GROUP + warp) * HEAD_DIM, l.q_norm, s, query + warp * HEAD_DIM);
    if (newest && warp == WARPS - 1) {
      turn(qkv + ATT + head * HEAD_DIM, l.k_norm, s, fresh);
      __syncwarp();
      for (int d = lane; d < HEAD_DIM; d += 32) new_keys[(u64)length * HEAD_DIM + d] = fresh[d];
    }
    if (newest && warp == WARPS - 2)
      for (int d = lane; d < HEAD_DIM; d += 32) {
        u16 v = fresh2(qkv + ATT + (KV_HEADS + head) * HEAD_DIM + d);
        new_values[(u64)length * HEAD_DIM + d] = fresh[HEAD_DIM + d] = v;
      }
    __syncthreads();
    // Scores, of 8 positions a warp: the query heads are the product's outputs, the positions its rows.
    float dots[4] = {0, 0, 0, 0};
    const bool own = newest && from + warp * 8 + g == length;
#pragma unroll
    for (int j = 0; j < HEAD_DIM / 32; j++) {
      uint4 q = g < GROUP ? shared16(shared_at(query) + g * HEAD_DIM * 2 + j * 64 + t * 16) : make_uint4(0, 0, 0, 0);
      if (own) keys[j] = shared16(shared_at(fresh) + j * 64 + t * 16);
      product(dots, q.x, 0, q.y, 0, keys[j].x, keys[j].y);
      product(dots, q.z, 0, q.w, 0, keys[j].z, keys[j].w);
    }
    if (g < GROUP) {
      int at = warp * 8 + 2 * t;
      scores[at * GROUP + g] = dots[0] * SCALE, scores[(at + 1) * GROUP + g] = dots[1] * SCALE;
    }
    __syncthreads();
    if (warp < GROUP) { // softmax, a warp for each query head
      float m = -3e38f, sum = 0;
#pragma unroll
      for (int p = 0; p < CHUNK; p += 32)
        if (p + lane < to - from) m = fmaxf(m, scores[(p + lane) * GROUP + warp]);
#pragma unroll
      for (int d = 16; d; d >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, d));
#pragma unroll
      for (int p = 0; p < CHUNK; p += 32) {
        float e = p + lane < to - from ? __expf(scores[(p + lane) * GROUP + warp] - m) : 0;
        scores[(p + lane) * GROUP + warp] = e, sum += e;
      }
      sum = sum_of_warp(sum);
      if (lane == 0) largest[warp] = m, total[warp] = sum;
    }
    __syncthreads();
    float acc[GROUP][8] = {};
    const int piece = tid % pieces;
#pragma unroll
    for (int j = 0; j < HEAD_DIM / 32; j++) {
      int p = tid / pieces + j * at_once;
      if (j * at_once >= to - from) break;
      uint4 v = values[j];
      if (newest && from + p == length) v = shared16(shared_at(fresh) + HEAD_DIM * 2 + piece * 16);
      float wides[8];
      both(v.x, wides[0], wides[1]), both(v.y, wides[2], wides[3]), both(v.z, wides[4], wides[5]), both(v.w, wides[6], wides[7]);
#pragma unroll
      for (int q = 0; q < GROUP; q++) {
        float e = scores[p * GROUP + q];
#pragma unroll
        for (int d = 0; d < 8; d++) acc[q][d] += e * wides[d];
      }
    }
#pragma unroll
    for (int q = 0; q < GROUP; q++) {
#pragma unroll
      for (int d = 0; d < 8; d++)
#pragma unroll
        for (int o = 16; o >= pieces; o >>= 1) acc[q][d] += __shfl_xor_sync(~0u, acc[q][d], o);
      if (lane < pieces) {
        float4 *out = (float4 *)(sums + (warp * GROUP + q) * HEAD_DIM + piece * 8);
        out[0] = make_float4(acc[q][0], acc[q][1], acc[q][2], acc[q][3]), out[1] = make_float4(acc[q][4], acc[q][5], acc[q][6], acc[q][7]);
      }
    }
    __syncthreads();
    float *parts = s.parts + (u64)(row * KV_HEADS + head) * SPLITS * GROUP * (HEAD_DIM + 2), *part = parts + split * GROUP * (HEAD_DIM + 2);
    u16 *out = s.attended + row * ATT + head * GROUP * HEAD_DIM;
    for (int i = tid; i < GROUP * HEAD_DIM; i += THREADS) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < WARPS; w++) sum += sums[w * GROUP * HEAD_DIM + i];
      if (count == 1) out[i] = narrow(sum / total[i / HEAD_DIM]);
      else part[i] = sum;
    }
    if (count == 1) return;
    if (tid < 2 * GROUP) part[GROUP * HEAD_DIM + tid] = largest[tid];
    // The last split to end merges them all.
    u32 *counter = s.counters + 2 + row * KV_HEADS + head;
    __syncthreads();
    if (tid == 0) asm volatile("atom.acq_rel.gpu.global.add.u32 %0,[%1],1;" : "=r"(*seen) : "l"(counter) : "memory");
    __syncthreads();
    if (*seen != count - 1) return;
    if (tid == 0) *counter = 0;
    if (warp < GROUP) { // the factor of each split
      const float *end = parts + GROUP * HEAD_DIM + warp;
      float m = -3e38f, sum = 0;
      for (int e = lane; e < count; e += 32) m = fmaxf(m, fresh4(end + e * GROUP * (HEAD_DIM + 2)));
#pragma unroll
      for (int d = 16; d; d >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, d));
      for (int e = lane; e < count; e += 32) {
        float f = __expf(fresh4(end + e * GROUP * (HEAD_DIM + 2)) - m);
        sums[warp * SPLITS + e] = f, sum += f * fresh4(end + e * GROUP * (HEAD_DIM + 2) + GROUP);
      }
      sum = sum_of_warp(sum);
      if (lane == 0) total[warp] = 1 / sum;
    }
    __syncthreads();
    for (int i = tid; i < GROUP * HEAD_DIM; i += THREADS) {
      float sum = 0;
#pragma unroll 8
      for (int e = 0; e < count; e++) sum += sums[i / HEAD_DIM * SPLITS + e] * fresh4(parts + e * GROUP * (HEAD_DIM + 2) + i);
      out[i] = narrow(sum * total[i / HEAD_DIM]);
    }
  }
};

// attend reads old keys and values, waits for the projections of all blocks, and does this block's part. It is a function of its own to
// need registers only here.
__device__ __forceinline__ void attend(const Step &s, const Layer &l, const Splits &splits, Barrier barrier) {
  if (blockIdx.x >= splits.all) {
    barrier.wait();
    return;
  }
  Attention first(s, l, splits, blockIdx.x);
  barrier.wait();
  first.run(s, l);
  for (int n = blockIdx.x + gridDim.x; n < splits.all; n += gridDim.x) {
    __syncthreads();
    Attention(s, l, splits, n).run(s, l);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) decode(const __grid_constant__ Step s) {
  Barrier barrier = {s.counters, s.counters[1] * gridDim.x * (5 * LAYERS + 1)};
  Stream stream(s);
  for (int i = 0; i < DEPTH; i++) stream.fill();
  for (int i = threadIdx.x; i < PASS / 4; i += THREADS) OFFSETS[i] = 0;
  Splits splits(s);
  __syncthreads();
  load_normed<4>(s, true, Norm(s.layers[0].norm), 0);
  for (int i = 0; i < LAYERS; i++) {
    const Layer &l = s.layers[i];
    run<kQKV>(s, i, stream, 0);
    barrier.arrive();
    attend(s, l, splits, barrier);
    barrier.arrive(), barrier.wait();
    if (Kind<kO>::passes == 1) load(s, s.attended, ATT, ATT);
    run<kO>(s, i, stream, s.attended);
    barrier.arrive();
    {
      Norm norm(l.ffn_norm);
      barrier.wait();
      load_normed<4>(s, false, norm, 0);
    }
    run<kGateUp>(s, i, stream, 0);
    barrier.arrive(), barrier.wait();
    if (Kind<kDown>::passes == 1) load(s, s.gated, FFN, FFN);
    run<kDown>(s, i, stream, s.gated);
    barrier.arrive();
    Norm norm(i + 1 < LAYERS ? s.layers[i + 1].norm : s.last_norm);
    barrier.wait();
    if (i + 1 < LAYERS) load_normed<4>(s, false, norm, 0);
    else load_normed<HEAD_BITS>(s, false, norm, s.hidden);
  }
  run<kHead>(s, LAYERS, stream, 0);
  barrier.arrive();
  if (blockIdx.x == 0) { // all blocks have read the number of launches
    barrier.wait();
    if (threadIdx.x == 0) s.counters[1]++;
  }
}

// Keys order logits: the value's bits in an order of unsigned numbers, then the inverse of its id, so that keys differ and the smaller
// id of equal values comes first.

// Sorted is 256 keys in a warp, eight a lane, to be in descending order.
struct Sorted {
  u64 keys[8];
  // exchange orders neighbours at a distance; runs of size are in descending and ascending order in turn.
  __device__ __forceinline__ void exchange(int size, int step) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < 8; i++) {
      bool down = ((lane * 8 + i) & size) == 0;
      if (step < 8) {
        if (i & step) continue;
        u64 a = keys[i], b = keys[i ^ step];
        if ((a < b) == down) keys[i] = b, keys[i ^ step] = a;
        continue;
      }
      u64 other = __shfl_xor_sync(~0u, keys[i], step / 8);
      if ((((lane * 8 & step) == 0) == down) == (keys[i] < other)) keys[i] = other;
    }
  }
  __device__ void sort() {
#pragma unroll
    for (int size = 2; size <= 256; size *= 2)
#pragma unroll
      for (int step = size / 2; step; step /= 2) exchange(size, step);
  }
  // merge keeps the 256 largest of these and of a sorted list.
  __device__ void merge(const u64 *list) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < 8; i++) {
      u64 other = list[255 - lane * 8 - i];
      if (keys[i] < other) keys[i] = other;
    }
#pragma unroll
    for (int step = 128; step; step /= 2) exchange(256, step);
  }
  // gather merges the keys of all warps into those of the first.
  __device__ void gather(u64 (*lists)[256]) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int half = 8; half; half /= 2) {
      if (warp >= half && warp < 2 * half)
#pragma unroll
        for (int i = 0; i < 8; i++) lists[warp][lane * 8 + i] = keys[i];
      __syncthreads();
      if (warp < half) merge(lists[warp + half]);
    }
  }
};

// best writes the 256 largest logits with bias of each 4096 as sorted keys, in blocks of 512 threads.
extern "C" __global__ void __launch_bounds__(512) best(const __grid_constant__ Step s, const float *bias, u64 *to) {
  __shared__ u64 lists[16][256];
  const int row = blockIdx.y, slot = s.table[row], lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  if (slot < 0) return;
  Sorted own;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    int n = blockIdx.x * 4096 + warp * 256 + i * 32 + lane;
    own.keys[i] = 0;
    if (n >= VOCAB) continue;
    u32 bits = __float_as_uint(s.logits[(u64)slot * VOCAB + n] + bias[(u64)slot * VOCAB + n]);
    own.keys[i] = (u64)(bits & 0x80000000 ? ~bits : bits | 0x80000000) << 32 | (u32)~n;
  }
  own.sort();
  own.gather(lists);
  if (warp == 0)
#pragma unroll
    for (int i = 0; i < 8; i++) to[((u64)row * gridDim.x + blockIdx.x) * 256 + lane * 8 + i] = own.keys[i];
}

// top merges the lists of best, and writes the TOP largest values and their ids.
extern "C" __global__ void __launch_bounds__(512) top(const __grid_constant__ Step s, const u64 *from, float *values, long long *ids) {
  __shared__ u64 lists[16][256];
  const int count = (VOCAB + 4095) / 4096, row = blockIdx.x, slot = s.table[row], lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  if (slot < 0) return;
  from += (u64)row * count * 256;
  Sorted own;
#pragma unroll
  for (int i = 0; i < 8; i++) own.keys[i] = warp < count ? from[warp * 256 + lane * 8 + i] : 0;
  for (int n = warp + 16; n < count; n += 16) own.merge(from + n * 256);
  own.gather(lists);
  if (warp) return;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    int n = lane * 8 + i;
    u32 bits = own.keys[i] >> 32;
    if (n >= TOP) continue;
    values[(u64)slot * TOP + n] = __uint_as_float(bits & 0x80000000 ? bits & 0x7fffffff : ~bits);
    ids[(u64)slot * TOP + n] = (u32)~own.keys[i];
  }
}

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
// A unit is 128 bytes of each of 16 rows, so that whole lines are read, and the scales of one row in a warp's units are neighbours. All kinds
// of matrices share one loop, which fits the instruction cache.
//
// Reached on an H200: a step of 1, 2, 4 and 8 rows with a vocabulary matrix of 8 bits in 1.90, 2.10, 2.40 and 3.11 ms; of 1 row with 4 bits
// in 1.7 ms, 2.6 TB/s, where a kernel that only reads reached 4.5 TB/s.
//
// Tried on an H200 without gain: a flag of each block instead of one counter (12 % slower), prefetch hints for L2 (2 %), rings of 5 units (2 %),
// 8 warps (1 row: 2 % faster, 8 rows: 20 % slower), products in integers with inputs of two digits, attention merged by its readers.
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
#define TILE 16                       // outputs of a product
#define UNIT 256                      // inputs of a unit of 4 bits, the weights that a warp copies and multiplies at a time
#define ROW_BYTES 128                 // of a unit's row
#define SLOT (TILE * (ROW_BYTES + 16)) // of the ring: a tile and its scales
#define COLUMN (PASS * 2 + 64)        // bytes of a row's inputs; the padding separates banks
#define ADDED (1 + ZEROS)             // floats for each row and block of 32 inputs: what its products lack, and its sum
#define SUM 20                        // floats of a tile's sums of a row; the padding separates banks
#define ALIGNED (HIDDEN % 1024 == 0 && ATT % 1024 == 0 && FFN % 1024 == 0) // zero points, to four bytes
#define TAILS (HIDDEN % UNIT || ATT % UNIT || FFN % UNIT) // whether a row's last unit may begin in the one before
#define CHUNK (8 * WARPS)             // positions of a split
// Macros of the plan: PASS is the inputs in shared memory at a time, BATCH the groups whose sums are there at a time, QKV_TILES, O_TILES,
// GATE_TILES and HEAD_TILES are the tiles of a group, which share the warps.

struct Matrix {
  const u8 *quants;  // [N][K/2], low nibble first, or [N][K] for 8 bits
  const u16 *scales; // float16 [N][K/BLOCK], of 32 inputs each in the vocabulary matrix
  const u8 *zeros;   // zero points [N][K/BLOCK/2], low nibble first, where they are not 8
};

struct Layer {
  Matrix matrices[4]; // of the kinds
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
__shared__ Layer layers[LAYERS];
__shared__ u32 kilo_bits; // a constant that the compiler does not know, which would put it in registers again and again
#define INPUTS (memory + WARPS * DEPTH * SLOT)
#define OFFSETS ((float *)(INPUTS + ROWS * COLUMN)) // [PASS/32][ROWS][ADDED]
#define TOTALS (OFFSETS + PASS / 32 * ROWS * ADDED)         // [BATCH][WARPS][ROWS][SUM]
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define ATTEND ((GROUP + 2) * HEAD_DIM * 2 + CHUNK * GROUP * 4 + WARPS * GROUP * HEAD_DIM * 4 + 1024)
static_assert(WARPS * DEPTH * SLOT + LARGER(ROWS * COLUMN + PASS / 8 * ROWS * ADDED + BATCH * WARPS * ROWS * SUM * 4, ATTEND) <= SHARED, "planFor gives too little");
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
enum { kQKV, kO, kGateUp, kDown, kHead, kEnd };

__device__ __forceinline__ int inputs_of(int kind) { return kind == kO ? ATT : kind == kDown ? FFN : HIDDEN; }
__device__ __forceinline__ int outputs_of(int kind) { return kind == kQKV ? QKV : kind == kGateUp ? 2 * FFN : kind == kHead ? VOCAB : HIDDEN; }
__device__ __forceinline__ int tiles_of(int kind) { return kind == kQKV ? QKV_TILES : kind == kGateUp ? GATE_TILES : kind == kHead ? HEAD_TILES : O_TILES; }
__device__ __forceinline__ int groups_of(int kind) { return (outputs_of(kind) + tiles_of(kind) * TILE - 1) / (tiles_of(kind) * TILE); }
__device__ __forceinline__ int bits_of(int kind) { return kind == kHead ? HEAD_BITS : 4; }
__device__ __forceinline__ int block_of(int kind) { return kind == kHead ? 32 : BLOCK; } // inputs of a scale
__device__ __forceinline__ int unit_of(int kind) { return UNIT * 4 / bits_of(kind); } // inputs
__device__ __forceinline__ int passes_of(int kind) { return (inputs_of(kind) + PASS - 1) / PASS; }
// first_output is that of a tile of a group. The second half of a group of gate and up is up. The last group of outputs that are no multiple
// repeats some of the one before.
__device__ __forceinline__ int first_output(int kind, int group, int tile) {
  const int tiles = tiles_of(kind), n = outputs_of(kind);
  if (kind != kGateUp) return min(group * tiles * TILE, n - tiles * TILE) + tile * TILE;
  const int half = tiles / 2;
  return min(group * half * TILE, FFN - half * TILE) + tile % half * TILE + tile / half * FFN;
}

// Units is a warp's share of a tile's units of a pass.
struct Units {
  int tile, first, count, back; // back is the inputs that the last one has in common with the one before
  __device__ __forceinline__ Units(int kind, int pass) {
    const int warp = threadIdx.x >> 5, warps = WARPS / tiles_of(kind), unit = unit_of(kind); // warps of a tile
    const int inputs = min(PASS, inputs_of(kind) - pass * PASS), all = (inputs + unit - 1) / unit, share = (all + warps - 1) / warps;
    tile = warp / warps, first = min(warp % warps * share, all), count = min(share, all - first);
    back = TAILS ? max((first + count) * unit - inputs, 0) : 0;
  }
};

// Stream is a warp's place in the weights of the whole step, in the order of use.
struct Stream {
  const Step &s;
  int kind, layer, group, pass, left, back; // left is the units to the end of the pass
  const u8 *quants;                   // of this lane in the next unit
  const u16 *scales;
  const u8 *zeros; // of the row
  int zero;        // the unit's first block
  u32 slot;        // of the ring: that of the oldest unit

  __device__ __forceinline__ u32 ring() const { return shared_at(memory) + (threadIdx.x >> 5) * DEPTH * SLOT; }
  __device__ __forceinline__ Stream(const Step &step) : s(step), kind(-1), layer(0), group(1 << 30), pass(0) {
    slot = ring();
    next();
  }

  // next goes to the next pass, group or matrix with units for this warp, or to the end.
  __device__ __forceinline__ void next() {
    const int lane = threadIdx.x & 31;
    for (left = 0; left == 0;) {
      if (++pass >= passes_of(kind)) pass = 0, group += gridDim.x;
      while (group >= groups_of(kind)) {
        group = blockIdx.x;
        if (++kind == kHead && layer + 1 < LAYERS) kind = kQKV, layer++;
        if (kind == kEnd) return;
      }
      const Matrix m = kind == kHead ? s.head : layers[layer].matrices[kind];
      const Units units(kind, pass);
      const int input = pass * PASS + units.first * unit_of(kind), output = first_output(kind, group, units.tile), k = inputs_of(kind);
      left = units.count, back = units.back;
      quants = m.quants + (u64)(output + (lane >> 3)) * (k * bits_of(kind) / 8) + input * bits_of(kind) / 8 + (lane & 7) * 16;
      scales = m.scales + (u64)(output + lane % TILE) * (k / block_of(kind)) + input / block_of(kind);
      if (ZEROS) zeros = m.zeros + (u64)(output + lane % TILE) * ((k / BLOCK + 1) / 2), zero = input / BLOCK;
    }
    if (TAILS) tail();
  }

  // tail moves the last unit.
  __device__ __forceinline__ void tail() {
    if (left == 1) quants -= back * bits_of(kind) / 8, scales -= back / block_of(kind), zero -= back / BLOCK;
  }

  // copy_zeros copies the two scales of a row, and four bytes of zero points, of which the unit has one.
  __device__ __forceinline__ void copy_zeros(u32 to) {
    if (ALIGNED) {
      copy4(to, scales), copy4(to + 4, zeros + (zero / 2 & ~3));
      return;
    }
    u32 both_scales = scales[0] | scales[1] << 16, both_zeros = zeros[zero / 2] >> zero % 2 * 4 & 15;
    both_zeros |= (zeros[(zero + 1) / 2] >> (zero + 1) % 2 * 4 & 15) << 4;
    asm volatile("st.shared.v2.u32 [%0],{%1,%2};" ::"r"(to), "r"(both_scales), "r"(both_zeros * 0x01010101) : "memory");
  }

  // fill queues the copy of the next unit to the slot at hand, nothing at the end: 128 bytes of each of 16 rows in pieces of 16, whose order
  // lets the pieces of eight rows use all banks; then their scales, 16 bytes a row, less for 8 bits and for blocks of 128.
  __device__ __forceinline__ void fill() {
    if (kind < kEnd) {
      const int lane = threadIdx.x & 31;
      const u32 rows4 = inputs_of(kind) * bits_of(kind) / 2; // bytes of four rows
      const u32 to = slot + (lane >> 3) * ROW_BYTES, piece = ((lane ^ lane >> 3) & 7) * 16;
#pragma unroll
      for (int j = 0; j < 4; j++) copy16(to + j * 4 * ROW_BYTES + (piece ^ (j & 1) * 64), quants + j * rows4);
      if (lane < TILE) {
        const u32 to_scales = slot + TILE * ROW_BYTES + lane * 16;
        if (HEAD_BITS == 8 && kind == kHead) copy8(to_scales, scales);
        else if (ZEROS && kind != kHead) copy_zeros(to_scales);
        else if (!TAILS) copy16(to_scales, scales);
        else copy8(to_scales, scales), copy8(to_scales + 8, scales + 4); // rows are aligned to 8 bytes
      }
      quants += ROW_BYTES, scales += unit_of(kind) / block_of(kind), zero += UNIT / BLOCK;
      if (--left == 0) next();
      else if (TAILS) tail();
    }
    commit();
    slot += SLOT;
    if (slot == ring() + DEPTH * SLOT) slot = ring();
  }
};

__device__ __forceinline__ void product(float *d, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// nibbles turns eight of them into halves of 1024 plus the nibbles (0,4) and (2,6), and 1024 plus 16 times (1,5) and (3,7): 0x6400 is 1024
// as a half, whose last bits count ones. The inputs of the odd ones are divided by 16, and place adds what is too much to OFFSETS.
__device__ __forceinline__ void nibbles(u32 q, u32 *out, u32 kilo) {
  u32 r = q >> 8;
  out[0] = (q & 0x000f000f) | kilo, out[1] = (q & 0x00f000f0) | kilo;
  out[2] = (r & 0x000f000f) | kilo, out[3] = (r & 0x00f000f0) | kilo;
}

__device__ __forceinline__ void both(u32 h, float &low, float &high) {
  asm("{.reg .b16 l,h; mov.b32 {l,h},%2; cvt.f32.f16 %0,l; cvt.f32.f16 %1,h;}" : "=f"(low), "=f"(high) : "r"(h));
}

// matrices reads 8 rows of 16 bytes for each of four groups of lanes, which have the addresses of a row each: lane 4g+t gets word t of row g.
__device__ __forceinline__ void matrices(u32 at, u32 *out) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];" : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "r"(at));
}

// multiply adds the products of a unit with the rows to acc: outputs g and g+8, rows 2t and 2t+1, for lane 4g+t. block is the unit's first
// block of 32 inputs, of which some are skipped.
template <int BITS, bool Z> __device__ __forceinline__ void multiply(float *acc, u32 slot, int block, int skipped) {
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const u32 x = shared_at(INPUTS) + g % ROWS * COLUMN + t * 16 + block * 64; // columns of no row are not used
  const u32 offsets = shared_at(OFFSETS) + (block * ROWS + t * 2 % ROWS) * ADDED * 4;
  const u32 words = slot + (lane & 15) * ROW_BYTES + ((lane >> 4 ^ lane) & 7) * 16;
  const u32 kilo = BITS == 4 ? shared4(shared_at(&kilo_bits)) : 0x64646464;
  u32 scales[2][4];
  float zeros[2][2]; // 8 less the zero points of the two blocks
#pragma unroll
  for (int h = 0; h < 2; h++) {
    uint4 v = shared16(slot + TILE * ROW_BYTES + (g + h * 8) * 16);
    scales[h][0] = v.x, scales[h][1] = v.y, scales[h][2] = v.z, scales[h][3] = v.w;
    const int points = v.y >> (block / 8 & 3) * 8;
    if (Z) zeros[h][0] = 8 - (points & 15), zeros[h][1] = 8 - (points >> 4 & 15);
  }
  u32 a[4];
#pragma unroll
  for (int b = 0; b < UNIT / BITS / 8; b++) {
    if (TAILS && BITS == 4 && b < skipped) continue; // the last unit begins in the one before; sizes are multiples of four blocks
    uint4 v = shared16(x + b * 64);
    float o0 = 0, sum0 = 0, o1 = 0, sum1 = 0;
    const u32 at = offsets + b * ROWS * ADDED * 4;
    if (ROWS == 1 && !ZEROS) o0 = __uint_as_float(shared4(at));
    else if (ROWS == 1 || !ZEROS) {
      uint2 o = shared8(at);
      o0 = __uint_as_float(o.x), (ZEROS ? sum0 : o1) = __uint_as_float(o.y);
    } else {
      uint4 o = shared16(at);
      o0 = __uint_as_float(o.x), sum0 = __uint_as_float(o.y), o1 = __uint_as_float(o.z), sum1 = __uint_as_float(o.w);
    }
    float d[4] = {0, 0, 0, 0};
    if constexpr (BITS == 4) {
      if (b % 2 == 0) matrices(words ^ b * 16, a); // two blocks
      u32 p[4], q[4];
      nibbles(a[b % 2 * 2], p, kilo), nibbles(a[b % 2 * 2 + 1], q, kilo);
      product(d, p[0], q[0], p[1], q[1], v.x, v.y);
      product(d, p[2], q[2], p[3], q[3], v.z, v.w);
    } else {
      matrices(words ^ b * 32, a);
#pragma unroll
      for (int h = 0; h < 2; h++) {
        u32 p = a[h * 2], q = a[h * 2 + 1];
        product(d, __byte_perm(p, kilo, 0x4140), __byte_perm(q, kilo, 0x4140), __byte_perm(p, kilo, 0x4342), __byte_perm(q, kilo, 0x4342),
                h ? v.z : v.x, h ? v.w : v.y);
      }
    }
    float low0, high0, low1, high1;
    both(scales[0][Z ? 0 : b / 2], low0, high0), both(scales[1][Z ? 0 : b / 2], low1, high1);
    const bool high = Z ? b / 4 : b % 2;
    const float s0 = high ? high0 : low0, s1 = high ? high1 : low1;
    if (Z) {
      const float z0 = zeros[0][b / 4], z1 = zeros[1][b / 4];
      d[0] += z0 * sum0, d[1] += z0 * sum1, d[2] += z1 * sum0, d[3] += z1 * sum1;
    }
    acc[0] += s0 * (d[0] + o0), acc[2] += s1 * (d[2] + o0);
    if (ROWS > 1) acc[1] += s0 * (d[1] + o1), acc[3] += s1 * (d[3] + o1);
  }
}

// place stores eight neighbouring inputs of a row in the order of multiply: for 4 bits (0,4), (1,5), (2,6), (3,7), the odd ones divided by
// 16. For 8 bits the lanes of a block of 32 have four inputs of each half: 4t to 4t+3, and 16 more. The block's offset takes 1024 and 8
// off the weights; other zero points need the sum. All lanes of a warp call it; four in a row have a block.
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
  float offset = BITS == 4 ? -1032 * even - 1152 * odd : -1152 * (even + odd), sum = even + 16 * odd;
#pragma unroll
  for (int d = 1; d < 4; d *= 2) {
    offset += __shfl_xor_sync(~0u, offset, d);
    if (ZEROS) sum += __shfl_xor_sync(~0u, sum, d);
  }
  if (!valid) return;
  if ((threadIdx.x & 3) == 0) {
    float *to = OFFSETS + (input / 32 * ROWS + row) * ADDED;
    to[0] = offset;
    if (ZEROS) to[1] = sum;
  }
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
__device__ __forceinline__ void load(const Step &s, int kind, int pass) {
  const int k = inputs_of(kind), pieces = min(PASS, k - pass * PASS) / 8;
  const u16 *from = (kind == kO ? s.attended : s.gated) + pass * PASS;
#pragma unroll 1
  for (int first = threadIdx.x; first - threadIdx.x < ROWS * pieces; first += 4 * THREADS) {
    uint4 v[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int i = first + j * THREADS, row = i / pieces;
      v[j] = row < ROWS && s.table[row] >= 0 ? fresh16(from + (u64)row * k + i % pieces * 8) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int i = first + j * THREADS, row = i / pieces;
      place<4>(row, i % pieces * 8, v[j], row < ROWS);
    }
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
__device__ __forceinline__ void load_normed(const Step &s, bool first, const Norm &norm, bool head) {
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
      if (HEAD_BITS == 8 && head) place<HEAD_BITS>(r, at, out, at < HIDDEN);
      else place<4>(r, at, out, at < HIDDEN);
      if (head && blockIdx.x == 0 && s.table[r] >= 0 && at < HIDDEN) *(uint4 *)(s.hidden + (u64)s.table[r] * HIDDEN + at) = out;
    }
  }
  __syncthreads();
}

// finish adds the sums of the warps of each tile, and writes the outputs of some groups, every gridDim.x-th. before is a residual.
__device__ __forceinline__ void finish(const Step &s, int kind, int first, int count, u16 before) {
  const int tiles = kind == kGateUp ? GATE_TILES / 2 : tiles_of(kind), warps = WARPS / tiles_of(kind);
  for (int i = threadIdx.x; i < count * tiles * TILE * ROWS; i += THREADS) {
    const int o = i % TILE, row = i / TILE % ROWS, tile = i / (TILE * ROWS) % tiles, group = i / (TILE * ROWS) / tiles;
    const float *at = TOTALS + ((group * WARPS + tile * warps) * ROWS + row) * SUM + o;
    float sum = 0, up = 0;
#pragma unroll 4
    for (int w = 0; w < warps; w++) sum += at[w * ROWS * SUM];
    if (kind == kGateUp)
#pragma unroll 4
      for (int w = 0; w < warps; w++) up += at[(w + WARPS / 2) * ROWS * SUM];
    if (s.table[row] < 0) continue;
    const int n = first_output(kind, first + group * gridDim.x, tile) + o;
    if (kind == kQKV) s.qkv[row * QKV + n] = narrow(sum);
    else if (kind == kGateUp) s.gated[row * FFN + n] = narrow(sum / (1 + __expf(-sum)) * up);
    else if (kind == kHead) s.logits[(u64)s.table[row] * VOCAB + n] = sum;
    else s.residual[row * HIDDEN + n] = narrow(wide(before) + sum);
  }
}

// run multiplies a matrix with the inputs. Groups with a residual come one at a time, others in batches.
__device__ __forceinline__ void run(const Step &s, int kind, bool fed, Stream &stream) {
  static_assert(O_TILES * TILE * ROWS <= THREADS, "each thread has one residual");
  const int groups = groups_of(kind), passes = passes_of(kind), lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const bool residual = kind == kO || kind == kDown;
  for (int first = blockIdx.x; first < groups;) {
    const int batch = residual ? 1 : min(BATCH, (groups - first + (int)gridDim.x - 1) / (int)gridDim.x);
    if (first != blockIdx.x) __syncthreads();
    u16 before = 0; // the residual of an output
    if (residual && threadIdx.x < O_TILES * TILE * ROWS) {
      int row = threadIdx.x / TILE % ROWS, n = first_output(kind, first, threadIdx.x / (TILE * ROWS)) + threadIdx.x % TILE, slot = s.table[row];
      if (slot >= 0) before = fresh2(fed ? s.fed + (u64)slot * HIDDEN + n : s.residual + row * HIDDEN + n);
    }
    for (int g = 0; g < batch; g++) {
      float acc[4] = {0, 0, 0, 0};
      for (int pass = 0; pass < passes; pass++) {
        if (passes > 1) {
          if (pass || first != blockIdx.x) __syncthreads();
          load(s, kind, pass);
        }
        const Units units(kind, pass);
#pragma unroll 1
        for (int unit = units.first; unit < units.first + units.count; unit++) {
          await_oldest();
          __syncwarp();
          const int skipped = TAILS && unit == units.first + units.count - 1 ? units.back / 32 : 0;
          if (kind == kHead && HEAD_BITS == 8) multiply<HEAD_BITS, false>(acc, stream.slot, unit * (UNIT / 64), 0);
          else if (kind == kHead && ZEROS) multiply<4, false>(acc, stream.slot, unit * (UNIT / 32) - skipped, skipped);
          else multiply<4, ZEROS>(acc, stream.slot, unit * (UNIT / 32) - skipped, skipped);
          __syncwarp();
          stream.fill();
        }
      }
#pragma unroll
      for (int c = 0; c < 4; c++) {
        const int row = 2 * (lane & 3) + (c & 1);
        if (row < ROWS) TOTALS[((g * WARPS + warp) * ROWS + row) * SUM + (lane >> 2) + (c & 2) * 4] = acc[c];
      }
    }
    __syncthreads();
    finish(s, kind, first, batch, before);
    first += batch * gridDim.x;
  }
}

// Splits are the pieces of the rows' positions that one block attends to.
struct Splits {
  int all; // of all rows and key heads
  __device__ Splits(const Step &s) : all(0) {
    for (int r = 0; r < ROWS; r++) all += of(s, r) * KV_HEADS;
  }
  __device__ int of(const Step &s, int row) const { return s.table[row] < 0 ? 0 : s.table[ROWS + row] / CHUNK + 1; }
};

// Attention is the work of a block on one split of a row's positions, for the query heads of one key head.
struct Attention {
  static const int pieces = HEAD_DIM / 8;             // of 8 values of a position
  static const int at_once = THREADS / pieces;        // positions whose values the block multiplies
  int row, head, split, count, from, to, length;      // positions [from, to); length is the new one
  u16 *new_keys, *new_values;                         // of the row's slot and the head
  static const int half = HEAD_DIM / 2, per = (half + 31) / 32; // pairs of a lane
  u16 norms[2 * per], cosines[per], sines[per];       // for the head that this warp turns
  uint4 keys[HEAD_DIM / 32], values[HEAD_DIM / 32];   // a thread's old ones: position g of its warp's 8, every fourth piece; a piece of some

  // The old keys and values depend on no other block.
  __device__ Attention(const Step &s, const Layer &l, const Splits &splits, int i) : row(0) {
    while (i >= splits.of(s, row) * KV_HEADS) i -= splits.of(s, row) * KV_HEADS, row++;
    count = splits.of(s, row), head = i / count, split = i % count, length = s.table[ROWS + row];
    from = split * CHUNK, to = min(from + CHUNK, length + 1);
    u64 base = ((u64)s.table[row] * KV_HEADS + head) * s.max_len * HEAD_DIM;
    new_keys = l.keys + base, new_values = l.values + base;
    const u16 *norm = threadIdx.x < GROUP * 32 ? l.q_norm : l.k_norm;
#pragma unroll
    for (int j = 0; j < per; j++) {
      int d = min((threadIdx.x & 31) + j * 32, half - 1);
      norms[2 * j] = norm[d], norms[2 * j + 1] = norm[half + d], cosines[j] = s.cos[length * half + d], sines[j] = s.sin[length * half + d];
    }
    const int lane = threadIdx.x & 31, position = from + (threadIdx.x >> 5) * 8 + (lane >> 2), old = min(to, length);
#pragma unroll
    for (int j = 0; j < HEAD_DIM / 32; j++) {
      keys[j] = position < old ? *(const uint4 *)(new_keys + (u64)position * HEAD_DIM + j * 32 + (lane & 3) * 8) : make_uint4(0, 0, 0, 0);
      int p = from + threadIdx.x / pieces + j * at_once;
      values[j] = p < old ? *(const uint4 *)(new_values + (u64)p * HEAD_DIM + threadIdx.x % pieces * 8) : make_uint4(0, 0, 0, 0);
    }
  }

  // turn norms a head's values and rotates them by the new position, where halves are pairs, for a warp.
  __device__ __forceinline__ void turn(const u16 *head_values, u16 *out) const {
    const int lane = threadIdx.x & 31;
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
      float x = a[j] * scale * wide(norms[2 * j]), y = b[j] * scale * wide(norms[2 * j + 1]), c = wide(cosines[j]), n = wide(sines[j]);
      out[d] = narrow(x * c - y * n), out[half + d] = narrow(y * c + x * n);
    }
  }

  __device__ __forceinline__ void run(const Step &s) {
    const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, g = lane >> 2, t = lane & 3;
    u16 *query = (u16 *)INPUTS, *fresh = query + GROUP * HEAD_DIM; // [GROUP][HEAD_DIM]; the new key and value
    float *scores = (float *)(fresh + 2 * HEAD_DIM);               // [CHUNK][GROUP]
    float *sums = scores + CHUNK * GROUP;                          // [WARPS][GROUP][HEAD_DIM]
    float *largest = sums + WARPS * GROUP * HEAD_DIM, *total = largest + GROUP;
    u32 *seen = (u32 *)(total + GROUP);
    const u16 *qkv = s.qkv + row * QKV;
    const bool newest = to == length + 1;
    if (warp < GROUP) turn(qkv + (head * GROUP + warp) * HEAD_DIM, query + warp * HEAD_DIM);
    if (newest && warp == WARPS - 1) {
      turn(qkv + ATT + head * HEAD_DIM, fresh);
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

// attend reads old keys and values, waits for the projections of all blocks, and does this block's part.
__device__ __forceinline__ void attend(const Step &s, const Layer &l, const Splits &splits, Barrier &barrier) {
  if (blockIdx.x >= splits.all) barrier.wait();
  for (int n = blockIdx.x; n < splits.all; n += gridDim.x) {
    Attention part(s, l, splits, n);
    if (n == blockIdx.x) barrier.wait();
    else __syncthreads();
    part.run(s);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) decode(const __grid_constant__ Step s) {
  for (int i = threadIdx.x; i < LAYERS * sizeof(Layer) / 8; i += THREADS) ((u64 *)layers)[i] = ((const u64 *)s.layers)[i];
  if (threadIdx.x == 0) kilo_bits = 0x64006400;
  Barrier barrier = {s.counters, s.counters[1] * gridDim.x * (5 * LAYERS + 1)};
  Splits splits(s);
  __syncthreads();
  Stream stream(s);
#pragma unroll 1
  for (int i = 0; i < DEPTH; i++) stream.fill();
#pragma unroll 1
  for (int stage = 0; stage <= 4 * LAYERS; stage++) {
    const int kind = stage < 4 * LAYERS ? stage % 4 : kHead;
    const Layer &l = layers[min(stage / 4, LAYERS - 1)];
    if (kind == kO) attend(s, l, splits, barrier), barrier.arrive();
    if (kind == kO || kind == kDown) {
      barrier.wait();
      if (passes_of(kind) == 1) load(s, kind, 0);
    } else {
      Norm norm(kind == kQKV ? l.norm : kind == kGateUp ? l.ffn_norm : s.last_norm);
      if (stage) barrier.wait();
      load_normed(s, stage == 0, norm, kind == kHead);
    }
    run(s, kind, stage == kO, stream);
    barrier.arrive();
  }
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

// Winograd convolution F(OUT x OUT, 3 x 3): a tile of OUT x OUT outputs needs PATCH x PATCH inputs,
// PATCH = OUT + 2, and PATCH**2 multiplications for each pair of channels instead of 9 * OUT**2.
//
//   input  --B' d B-->  V  \
//                           >-- one GEMM for each of the PATCH**2 places and each group -->  M
//   filter --G g G'-->  U  /                              M  --A' m A-->  output
//
//            channels first               channels last       (fastest axis last)
//   V        [place][group][from][tile]   [place][group][tile][from]
//   U        [place][group][to][from]     [place][group][from][to]
//   M        [place][group][to][tile]     [place][group][tile][to]
//
// Matrices as in Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016.
#include "conv.h"
#include "as_forward.h"

#ifndef OUT
#define OUT 2
#endif
#ifndef CHANNELS_LAST
#define CHANNELS_LAST 0
#endif
#define PATCH (OUT + 2)
#define PLACES (PATCH * PATCH)

typedef struct {
    FastDivisor by_tiles_w, by_tiles_h, by_tiles, by_channels;
    int tiles_w, tiles_h, tiles;  // tiles: of all images
    int channels;                 // of a group: of the input here, of the output there
    int threads;                  // that have something to do
} Work;

// What a thread works on.
typedef struct {
    int group, channel, tile, n, h, w;
} Item;

FUNCTION Item item_of(int index, Work work, int groups) {
    Item item;
    int rest, next;
#if CHANNELS_LAST
    next = divide(index, work.by_channels);
    item.channel = index - next * work.channels;
    rest = divide(next, work.by_tiles);
    item.tile = next - rest * work.tiles;
    item.group = rest;
#else
    next = divide(index, work.by_tiles);
    item.tile = index - next * work.tiles;
    rest = divide(next, work.by_channels);
    item.channel = next - rest * work.channels;
    item.group = rest;
#endif
    next = divide(item.tile, work.by_tiles_w);
    item.w = (item.tile - next * work.tiles_w) * OUT;
    item.n = divide(next, work.by_tiles_h);
    item.h = (next - item.n * work.tiles_h) * OUT;
    return item;
}

#define D(i) d[(i) * step]

FUNCTION void input_transform(float* d, int step) {
#if OUT == 2
    float a = D(0) - D(2), b = D(1) + D(2), c = D(2) - D(1), e = D(1) - D(3);
    D(0) = a, D(1) = b, D(2) = c, D(3) = e;
#else
    float a = 4.0f * D(0) - 5.0f * D(2) + D(4);
    float p = D(4) - 4.0f * D(2), q = D(3) - 4.0f * D(1);
    float r = D(4) - D(2), s = 2.0f * (D(3) - D(1));
    float z = 4.0f * D(1) - 5.0f * D(3) + D(5);
    D(0) = a, D(1) = p + q, D(2) = p - q, D(3) = r + s, D(4) = r - s, D(5) = z;
#endif
}

// Three taps in, PATCH values out.
FUNCTION void filter_transform(float* d, int step) {
    float a = D(0), b = D(1), c = D(2);
#if OUT == 2
    D(1) = 0.5f * (a + b + c), D(2) = 0.5f * (a - b + c), D(3) = c;
#else
    float even = a + c, wide_even = a + 4.0f * c;
    D(0) = 0.25f * a;
    D(1) = (-1.0f / 6.0f) * (even + b), D(2) = (-1.0f / 6.0f) * (even - b);
    D(3) = (1.0f / 24.0f) * (wide_even + 2.0f * b), D(4) = (1.0f / 24.0f) * (wide_even - 2.0f * b);
    D(5) = c;
#endif
}

// PATCH values in, OUT out.
FUNCTION void output_transform(float* d, int step) {
#if OUT == 2
    float a = D(0) + D(1) + D(2), b = D(1) - D(2) - D(3);
    D(0) = a, D(1) = b;
#else
    float even = D(1) + D(2), odd = D(1) - D(2), far_even = D(3) + D(4), far_odd = D(3) - D(4);
    float last = D(5);
    D(0) = D(0) + even + far_even;
    D(1) = odd + 2.0f * far_odd;
    D(2) = even + 4.0f * far_even;
    D(3) = odd + 8.0f * far_odd + last;
#endif
}

KERNEL winograd_input(FROM_W_TO, GLOBAL float* RESTRICT transformed, const ConvSizes s,
                      const AsForward f, const Work work) {
    int index = BLOCK_X * THREADS + THREAD;
    if (index >= work.threads) return;
    Item item = item_of(index, work, s.groups);
    int all = f.from_channels * s.groups, channel = item.group * f.from_channels + item.channel;
    float d[PLACES];
    UNROLL for (int i = 0; i < PATCH; ++i) {
        int h = item.h - f.pad_h + i;
        UNROLL for (int j = 0; j < PATCH; ++j) {
            int v = item.w - f.pad_w + j;
            float value = 0.0f;
            if (h >= 0 && h < f.from_h && v >= 0 && v < f.from_w)
                value = WIDEN(input[CHANNELS_LAST
                                        ? ((item.n * f.from_h + h) * f.from_w + v) * all + channel
                                        : ((item.n * all + channel) * f.from_h + h) * f.from_w + v]);
            d[i * PATCH + j] = value;
        }
    }
    UNROLL for (int i = 0; i < PATCH; ++i) input_transform(d + i * PATCH, 1);
    UNROLL for (int j = 0; j < PATCH; ++j) input_transform(d + j, PATCH);
    UNROLL for (int place = 0; place < PLACES; ++place)
        transformed[place * work.threads + index] = d[place];
}

KERNEL winograd_filter(FROM_W_TO, GLOBAL float* RESTRICT transformed, const ConvSizes s,
                       const AsForward f) {
    int index = BLOCK_X * THREADS + THREAD;
    int pairs = f.from_channels * f.to_channels;
    if (index >= pairs * s.groups) return;
    int group = index / pairs, rest = index - group * pairs;
#if CHANNELS_LAST
    int from = rest / f.to_channels, to = rest - from * f.to_channels;
#else
    int to = rest / f.from_channels, from = rest - to * f.from_channels;
#endif
    float d[PLACES];
    UNROLL for (int i = 0; i < 3; ++i) UNROLL for (int j = 0; j < 3; ++j)
        d[i * PATCH + j] = WIDEN(w[filter_place(f, group, to, from, i * 3 + j)]);
    UNROLL for (int i = 0; i < 3; ++i) filter_transform(d + i * PATCH, 1);
    UNROLL for (int j = 0; j < PATCH; ++j) filter_transform(d + j, PATCH);
    UNROLL for (int place = 0; place < PLACES; ++place)
        transformed[place * pairs * s.groups + index] = d[place];
}

KERNEL winograd_output(FROM_W_TO, GLOBAL const elem* RESTRICT bias,
                       GLOBAL const float* RESTRICT product, const ConvSizes s, const AsForward f,
                       const Work work) {
    int index = BLOCK_X * THREADS + THREAD;
    if (index >= work.threads) return;
    Item item = item_of(index, work, s.groups);
    int all = f.to_channels * s.groups, channel = item.group * f.to_channels + item.channel;
    float d[PLACES];
    UNROLL for (int place = 0; place < PLACES; ++place)
        d[place] = product[place * work.threads + index];
    UNROLL for (int i = 0; i < PATCH; ++i) output_transform(d + i * PATCH, 1);
    UNROLL for (int j = 0; j < OUT; ++j) output_transform(d + j, PATCH);
    float added = bias ? WIDEN(bias[channel]) : 0.0f;
    UNROLL for (int i = 0; i < OUT; ++i) UNROLL for (int j = 0; j < OUT; ++j) {
        int h = item.h + i, v = item.w + j;
        if (h < f.to_h && v < f.to_w) {
            int at = CHANNELS_LAST ? ((item.n * f.to_h + h) * f.to_w + v) * all + channel
                                   : ((item.n * all + channel) * f.to_h + h) * f.to_w + v;
            store_scaled(output, at, d[i * PATCH + j], s.alpha, s.beta, added);
        }
    }
}

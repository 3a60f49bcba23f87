// Depthwise convolution: every group has one input channel and MULTIPLIER output channels, so there
// is nothing to share between channels, and the work is bound by memory.
//
// F, B: a thread computes ROWS x COLUMNS neighbouring elements of VECTOR channels.
//
//   NCHW: lanes lie along the width         NHWC: lanes lie along the channels
//   +----+----+----+----+                   +----+----+----+----+
//   | t0 | t1 | t2 | .. |  COLUMNS wide,    | t0 | t1 | t2 | .. |  VECTOR channels each
//   +----+----+----+----+  ROWS high        +----+----+----+----+
//
// W: a block sums one part of the pixels (all images) for CHANNELS channels and TAPS filter places at
// a time; its threads lie THREADS / CHANNELS along the pixels. gemm/split_k.cl adds the parts up.
#include "../conv.h"

#ifndef CHANNELS_LAST
#define CHANNELS_LAST 0
#endif
#ifndef ROWS
#define ROWS 1
#endif
#ifndef COLUMNS
#define COLUMNS 4
#endif
#ifndef VECTOR
#define VECTOR 1
#endif
#ifndef CHANNELS
#define CHANNELS 1
#endif
#ifndef TAPS
#define TAPS 3
#endif

typedef struct {
    elem at[VECTOR];
} __attribute__((aligned(VECTOR * (DTYPE == 0 ? 4 : 2)))) Channels;

typedef struct {
    FastDivisor by_tiles_w, by_tiles_h, by_channels, by_stride_h, by_stride_w;
    int tiles_w, tiles_h, channels;  // channels: in steps of VECTOR
    int threads;                     // that have something to do
    int multiplier;                  // output channels of an input channel
} Shape;

#if !WRW
KERNEL conv_depthwise(
#if FORWARD
    GLOBAL const elem* RESTRICT input, GLOBAL const elem* RESTRICT w, GLOBAL elem* RESTRICT output,
#else
    GLOBAL elem* RESTRICT output, GLOBAL const elem* RESTRICT w, GLOBAL const elem* RESTRICT input,
#endif
    GLOBAL const elem* RESTRICT bias, const ConvSizes s, const Shape shape) {
    int rest = BLOCK_X * THREADS + THREAD;
    if (rest >= shape.threads) return;
    int next, channel, tile_w, tile_h;
#if CHANNELS_LAST
    next = divide(rest, shape.by_channels);
    channel = (rest - next * shape.channels) * VECTOR;
    rest = divide(next, shape.by_tiles_w);
    tile_w = (next - rest * shape.tiles_w) * COLUMNS;
    int n = divide(rest, shape.by_tiles_h);
    tile_h = (rest - n * shape.tiles_h) * ROWS;
#else
    next = divide(rest, shape.by_tiles_w);
    tile_w = (rest - next * shape.tiles_w) * COLUMNS;
    rest = divide(next, shape.by_tiles_h);
    tile_h = (next - rest * shape.tiles_h) * ROWS;
    int n = divide(rest, shape.by_channels);
    channel = rest - n * shape.channels;
#endif
    // What is read (from_) and what is written (to_): x and y, or y and x.
#if FORWARD
    int from_h = s.in_h, from_w = s.in_w, to_h = s.out_h, to_w = s.out_w;
    int from_channels = s.in_channels, to_channels = s.out_channels;
#else
    int from_h = s.out_h, from_w = s.out_w, to_h = s.in_h, to_w = s.in_w;
    int from_channels = s.out_channels, to_channels = s.in_channels;
#endif
    float sum[ROWS][COLUMNS][VECTOR];
    UNROLL for (int i = 0; i < ROWS; ++i) UNROLL for (int j = 0; j < COLUMNS; ++j)
        UNROLL for (int v = 0; v < VECTOR; ++v) sum[i][j][v] = 0.0f;
    int filter_size = s.filter_h * s.filter_w;
#if FORWARD
    // VECTOR is 1 where the multiplier isn't.
    int from_channel = shape.multiplier == 1 ? channel : channel / shape.multiplier;
    int k = channel;
    {
#else
    for (int m = 0; m < shape.multiplier; ++m) {
        int from_channel = channel * shape.multiplier + m;
        int k = from_channel;
#endif
        for (int r = 0; r < s.filter_h; ++r)
            for (int c = 0; c < s.filter_w; ++c) {
                float weight[VECTOR];
                int tap = r * s.filter_w + c;
                UNROLL for (int v = 0; v < VECTOR; ++v)
                    weight[v] = WIDEN(CHANNELS_LAST ? w[k * filter_size + v * filter_size + tap]
                                                    : w[k * filter_size + tap]);
                UNROLL for (int i = 0; i < ROWS; ++i) {
#if FORWARD
                    int h = (tile_h + i) * s.stride_h - s.pad_h + r * s.dilation_h;
                    int is_row = h >= 0 && h < from_h;
#else
                    int scaled_h = tile_h + i + s.pad_h - r * s.dilation_h;
                    int h = divide(MAX(scaled_h, 0), shape.by_stride_h);
                    int is_row = scaled_h >= 0 && h * s.stride_h == scaled_h && h < from_h;
#endif
                    UNROLL for (int j = 0; j < COLUMNS; ++j) {
#if FORWARD
                        int q = (tile_w + j) * s.stride_w - s.pad_w + c * s.dilation_w;
                        int is_inside = is_row && q >= 0 && q < from_w;
#else
                        int scaled_w = tile_w + j + s.pad_w - c * s.dilation_w;
                        int q = divide(MAX(scaled_w, 0), shape.by_stride_w);
                        int is_inside =
                            is_row && scaled_w >= 0 && q * s.stride_w == scaled_w && q < from_w;
#endif
                        if (is_inside) {
#if CHANNELS_LAST
                            Channels value = *(GLOBAL const Channels*)(
                                input + ((n * from_h + h) * from_w + q) * from_channels + from_channel);
                            UNROLL for (int v = 0; v < VECTOR; ++v)
                                sum[i][j][v] = FMA(WIDEN(value.at[v]), weight[v], sum[i][j][v]);
#else
                            elem value =
                                input[((n * from_channels + from_channel) * from_h + h) * from_w + q];
                            sum[i][j][0] = FMA(WIDEN(value), weight[0], sum[i][j][0]);
#endif
                        }
                    }
                }
            }
    }
    UNROLL for (int i = 0; i < ROWS; ++i) UNROLL for (int j = 0; j < COLUMNS; ++j) {
        int h = tile_h + i, q = tile_w + j;
        if (h < to_h && q < to_w) {
            UNROLL for (int v = 0; v < VECTOR; ++v) {
                int to = channel + v;
                float added = bias ? WIDEN(bias[to]) : 0.0f;
                int place = CHANNELS_LAST ? ((n * to_h + h) * to_w + q) * to_channels + to
                                          : ((n * to_channels + to) * to_h + h) * to_w + q;
                store_scaled(output, place, sum[i][j][v], s.alpha, s.beta, added);
            }
        }
    }
}
#else

// Block (x, y): output channels from x * CHANNELS on, part y of the pixels. What it sums goes to
// parts[y][k][tap].
KERNEL conv_depthwise_wrw(GLOBAL const elem* RESTRICT x, GLOBAL const elem* RESTRICT y,
                          GLOBAL float* RESTRICT parts, const ConvSizes s, const Shape shape,
                          const int part_pixels) {
    LOCAL float shared[TAPS * THREADS];
    int lane = THREAD % CHANNELS, row = THREAD / CHANNELS;
    int k = BLOCK_X * CHANNELS + lane;
    int is_channel = k < s.out_channels;
    int channel = is_channel ? k / shape.multiplier : 0;
    int pixels = s.batch * s.out_h * s.out_w;
    int first = BLOCK_Y * part_pixels, last = MIN(first + part_pixels, pixels);
    int taps = s.filter_h * s.filter_w;
    for (int tap = 0; tap < taps; tap += TAPS) {
        float sum[TAPS];
        int at_h[TAPS], at_w[TAPS];
        UNROLL for (int t = 0; t < TAPS; ++t) {
            sum[t] = 0.0f;
            int r = (tap + t) / s.filter_w;
            at_h[t] = r * s.dilation_h - s.pad_h;
            at_w[t] = (tap + t - r * s.filter_w) * s.dilation_w - s.pad_w;
        }
        if (is_channel)
            for (int pixel = first + row; pixel < last; pixel += THREADS / CHANNELS) {
                // by_tiles: here of the output's width and height
                int line = divide(pixel, shape.by_tiles_w);
                int ow = pixel - line * s.out_w;
                int n = divide(line, shape.by_tiles_h);
                int oh = line - n * s.out_h;
                float gradient = WIDEN(
                    CHANNELS_LAST ? y[pixel * s.out_channels + k]
                                  : y[((n * s.out_channels + k) * s.out_h + oh) * s.out_w + ow]);
                UNROLL for (int t = 0; t < TAPS; ++t) {
                    int h = oh * s.stride_h + at_h[t], q = ow * s.stride_w + at_w[t];
                    if (tap + t < taps && h >= 0 && h < s.in_h && q >= 0 && q < s.in_w) {
                        elem value =
                            x[CHANNELS_LAST ? ((n * s.in_h + h) * s.in_w + q) * s.in_channels + channel
                                            : ((n * s.in_channels + channel) * s.in_h + h) * s.in_w + q];
                        sum[t] = FMA(gradient, WIDEN(value), sum[t]);
                    }
                }
            }
        UNROLL for (int t = 0; t < TAPS; ++t) shared[t * THREADS + THREAD] = sum[t];
        for (int span = THREADS / 2; span >= CHANNELS; span /= 2) {
            BARRIER();
            if (THREAD < span)
                UNROLL for (int t = 0; t < TAPS; ++t)
                    shared[t * THREADS + THREAD] += shared[t * THREADS + THREAD + span];
        }
        if (THREAD < CHANNELS && is_channel)
            UNROLL for (int t = 0; t < TAPS; ++t)
                if (tap + t < taps)
                    parts[(BLOCK_Y * s.out_channels + k) * taps + tap + t] = shared[t * THREADS + THREAD];
        BARRIER();
    }
}
#endif

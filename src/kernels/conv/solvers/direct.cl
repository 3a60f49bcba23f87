// Tiled direct convolution, forward; backward data with a stride of 1 is the same with the filter
// turned round, x and y exchanged.
//
// A block computes TILE_H x TILE_W pixels of TILE_K channels of one image. It walks over the input's
// channels, CHANNELS at a time; of these it keeps the patch that its pixels need, and the filters,
// in local memory:
//
//      patch (one channel)                tile of the output (one channel)
//   +--------------------+
//   | +----------------+ |              +-------------------+
//   | |                | |   filter     |t0 t1 .. t0 t1 ..  |   a thread has PIXELS columns,
//   | |                | |  -------->   |t8 t9 .. t8 t9 ..  |   TILE_W / PIXELS apart, of PER_K
//   | +----------------+ |              +-------------------+   channels
//   +--------------------+
#include "../conv.h"

#ifndef CHANNELS_LAST
#define CHANNELS_LAST 0
#endif
#ifndef TILE_H
#define TILE_H 4
#endif
#ifndef TILE_W
#define TILE_W 32
#endif
#ifndef TILE_K
#define TILE_K 16
#endif
#ifndef PIXELS
#define PIXELS 4
#endif
#ifndef PER_K
#define PER_K 8
#endif
#ifndef CHANNELS
#define CHANNELS 2
#endif
// Room in local memory, in floats: for the patches and for the filters of CHANNELS channels.
#ifndef PATCH
#define PATCH 1024
#endif
#ifndef FILTERS
#define FILTERS 1024
#endif

#define LANES (TILE_W / PIXELS)

typedef struct {
    int from_channels, to_channels;  // of a group
    int from_h, from_w, to_h, to_w;
    int pad_h, pad_w;
    int patch_h, patch_w;
    int tiles_h, tiles_w, tiles_k;
    int filter_to, filter_from;      // elements between filters of channels of output and input
    int filter_size;                 // taps
} Shape;

KERNEL conv_direct(
#if FORWARD
    GLOBAL const elem* RESTRICT input, GLOBAL const elem* RESTRICT w, GLOBAL elem* RESTRICT output,
#else
    GLOBAL elem* RESTRICT output, GLOBAL const elem* RESTRICT w, GLOBAL const elem* RESTRICT input,
#endif
    GLOBAL const elem* RESTRICT bias, const ConvSizes s, const Shape t) {
    LOCAL float patch[PATCH];
    LOCAL float filters[FILTERS];

    int rest = BLOCK_X;
    int tile_w = rest % t.tiles_w * TILE_W;
    rest /= t.tiles_w;
    int tile_h = rest % t.tiles_h * TILE_H;
    rest /= t.tiles_h;
    int tile_k = rest % t.tiles_k * TILE_K;
    rest /= t.tiles_k;
    int group = rest % s.groups;
    int n = rest / s.groups;

    int lane = THREAD % LANES, row = THREAD / LANES % TILE_H;
    int own_k = THREAD / (LANES * TILE_H) * PER_K;
    int first_h = tile_h * s.stride_h - t.pad_h, first_w = tile_w * s.stride_w - t.pad_w;
    int patch_size = t.patch_h * t.patch_w;

    float sum[PER_K][PIXELS];
    UNROLL for (int k = 0; k < PER_K; ++k) UNROLL for (int p = 0; p < PIXELS; ++p) sum[k][p] = 0.0f;

    for (int start = 0; start < t.from_channels; start += CHANNELS) {
        int channels = MIN(CHANNELS, t.from_channels - start);
        BARRIER();
        for (int i = THREAD; i < channels * patch_size; i += THREADS) {
#if CHANNELS_LAST
            int place = i / channels, c = i - place * channels;
#else
            int c = i / patch_size, place = i - c * patch_size;
#endif
            int h = place / t.patch_w, v = place - h * t.patch_w;
            int from_h = first_h + h, from_w = first_w + v;
            float value = 0.0f;
            if (from_h >= 0 && from_h < t.from_h && from_w >= 0 && from_w < t.from_w) {
                int channel = group * t.from_channels + start + c;
                int all = t.from_channels * s.groups;
                value = WIDEN(input[CHANNELS_LAST
                                        ? ((n * t.from_h + from_h) * t.from_w + from_w) * all + channel
                                        : ((n * all + channel) * t.from_h + from_h) * t.from_w + from_w]);
            }
            patch[c * patch_size + place] = value;
        }
        int taps = channels * t.filter_size;
        for (int i = THREAD; i < taps * TILE_K; i += THREADS) {
            int k = i / taps, tap = i - k * taps;
#if CHANNELS_LAST
            int place = tap / channels, c = tap - place * channels;
#else
            int c = tap / t.filter_size, place = tap - c * t.filter_size;
#endif
            float value = 0.0f;
            if (tile_k + k < t.to_channels) {
                // Groups follow each other along the filters' first axis.
                int to = tile_k + k + (FORWARD ? group * t.to_channels : 0);
                int from = start + c + (FORWARD ? 0 : group * t.from_channels);
                int step = CHANNELS_LAST ? s.in_channels / s.groups : 1;
                int turned = FORWARD ? place : t.filter_size - 1 - place;
                value = WIDEN(w[to * t.filter_to + from * t.filter_from + turned * step]);
            }
            filters[(c * t.filter_size + place) * TILE_K + k] = value;
        }
        BARRIER();
        for (int c = 0; c < channels; ++c)
            for (int r = 0; r < s.filter_h; ++r) {
                int line = c * patch_size + (row * s.stride_h + r * s.dilation_h) * t.patch_w;
                int tap = (c * t.filter_size + r * s.filter_w) * TILE_K + own_k;
                for (int q = 0; q < s.filter_w; ++q) {
                    float value[PIXELS];
                    UNROLL for (int p = 0; p < PIXELS; ++p)
                        value[p] = patch[line + (lane + p * LANES) * s.stride_w + q * s.dilation_w];
                    UNROLL for (int k = 0; k < PER_K; ++k) {
                        float weight = filters[tap + q * TILE_K + k];
                        UNROLL for (int p = 0; p < PIXELS; ++p)
                            sum[k][p] = FMA(weight, value[p], sum[k][p]);
                    }
                }
            }
    }
    int h = tile_h + row;
    int all = t.to_channels * s.groups;
    if (h < t.to_h)
        UNROLL for (int k = 0; k < PER_K; ++k) {
            int in_group = tile_k + own_k + k, channel = group * t.to_channels + in_group;
            UNROLL for (int p = 0; p < PIXELS; ++p) {
                int v = tile_w + lane + p * LANES;
                if (in_group < t.to_channels && v < t.to_w) {
                    float added = bias ? WIDEN(bias[channel]) : 0.0f;
                    int place = CHANNELS_LAST ? ((n * t.to_h + h) * t.to_w + v) * all + channel
                                              : ((n * all + channel) * t.to_h + h) * t.to_w + v;
                    store_scaled(output, place, sum[k][p], s.alpha, s.beta, added);
                }
            }
        }
}

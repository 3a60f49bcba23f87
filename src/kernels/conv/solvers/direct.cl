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
#include "../as_forward.h"

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
    int patch_h, patch_w;
    int tiles_h, tiles_w, tiles_k;
} Tiles;

KERNEL conv_direct(FROM_W_TO, GLOBAL const elem* RESTRICT bias, const ConvSizes s,
                   const AsForward f, const Tiles t) {
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
    int first_h = tile_h * s.stride_h - f.pad_h, first_w = tile_w * s.stride_w - f.pad_w;
    int filter_size = s.filter_h * s.filter_w;
    int patch_size = t.patch_h * t.patch_w;

    float sum[PER_K][PIXELS];
    UNROLL for (int k = 0; k < PER_K; ++k) UNROLL for (int p = 0; p < PIXELS; ++p) sum[k][p] = 0.0f;

    for (int start = 0; start < f.from_channels; start += CHANNELS) {
        int channels = MIN(CHANNELS, f.from_channels - start);
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
            if (from_h >= 0 && from_h < f.from_h && from_w >= 0 && from_w < f.from_w) {
                int channel = group * f.from_channels + start + c;
                int all = f.from_channels * s.groups;
                value = WIDEN(input[CHANNELS_LAST
                                        ? ((n * f.from_h + from_h) * f.from_w + from_w) * all + channel
                                        : ((n * all + channel) * f.from_h + from_h) * f.from_w + from_w]);
            }
            patch[c * patch_size + place] = value;
        }
        int taps = channels * filter_size;
        for (int i = THREAD; i < taps * TILE_K; i += THREADS) {
            int k = i / taps, tap = i - k * taps;
#if CHANNELS_LAST
            int place = tap / channels, c = tap - place * channels;
#else
            int c = tap / filter_size, place = tap - c * filter_size;
#endif
            float value = 0.0f;
            if (tile_k + k < f.to_channels) {
                value = WIDEN(w[filter_place(f, group, tile_k + k, start + c, place)]);
            }
            filters[(c * filter_size + place) * TILE_K + k] = value;
        }
        BARRIER();
        for (int c = 0; c < channels; ++c)
            for (int r = 0; r < s.filter_h; ++r) {
                int line = c * patch_size + (row * s.stride_h + r * s.dilation_h) * t.patch_w;
                int tap = (c * filter_size + r * s.filter_w) * TILE_K + own_k;
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
    int all = f.to_channels * s.groups;
    if (h < f.to_h)
        UNROLL for (int k = 0; k < PER_K; ++k) {
            int in_group = tile_k + own_k + k, channel = group * f.to_channels + in_group;
            UNROLL for (int p = 0; p < PIXELS; ++p) {
                int v = tile_w + lane + p * LANES;
                if (in_group < f.to_channels && v < f.to_w) {
                    float added = bias ? WIDEN(bias[channel]) : 0.0f;
                    int place = CHANNELS_LAST ? ((n * f.to_h + h) * f.to_w + v) * all + channel
                                              : ((n * all + channel) * f.to_h + h) * f.to_w + v;
                    store_scaled(output, place, sum[k][p], s.alpha, s.beta, added);
                }
            }
        }
}

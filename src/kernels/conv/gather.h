// Gathering for convolutions: the tensor that is gathered from is read at (place of a pixel) +
// (place of a tap), in every direction. A tap is a channel with a filter place.
//
//         gathered   pixels of   columns of taps with pixels
//   F     x          y           x[n, c, o * stride - pad + f * dilation]
//   W     x          y           the same
//   B     y          x           y[n, k, (i + pad - f * dilation) / stride], where it divides
//
// B splits the pixels of x into the residue classes of the stride, a part of the grid each: within a
// class every tap that reaches any pixel reaches all, the taps step by stride / gcd(stride,
// dilation), and no product with a zero between strides is done.
//
//   x pixel = first_pixel + stride * j      y place = start + unit * j + tap_unit * t
#include "conv.h"
#include "../gemm/place.h"
#ifndef CHANNELS_LAST
#define CHANNELS_LAST 0
#endif

typedef struct {
    int size, filter, pixel_size;  // of the gathered tensor, the filter, the pixels' tensor
    int gathered, pixel, weight;   // elements between neighbours in each
    int pixels, taps;              // most of any class
    int unit, tap_unit;            // gathered places between neighbouring pixels and taps
    int classes, tap_step;
    int stride, pad, dilation;
    FastDivisor by_pixels[2], by_taps[2];  // by the most of any class, by one less
} Dimension;

typedef struct {
    Dimension d, h, w;
    int m, batch, channels;                         // the taps' channels, of one group
    int gathered_n, gathered_c, pixel_n, weight_c;  // elements between neighbours
    int a_m, c_m, a_group, b_group, c_group;
    FastDivisor by_channels;
} Geometry;

// A dimension as one class sees it.
typedef struct {
    int pixels, taps, start, first_pixel, first_tap;
    FastDivisor by_pixels, by_taps;
} ClassView;

typedef struct {
    int m, n, k;
    int a_first, b_first, c_first, bias_first, a_m, c_m;
    int in_d, in_h, in_w;
    ClassView d, h, w;
} View;

FUNCTION ClassView class_view(Dimension s, int residue) {
    ClassView v;
    v.first_pixel = residue;
    v.first_tap = 0;
    v.pixels = s.pixels;
    v.taps = s.taps;
#if BACKWARD
    int distance = residue + s.pad;
    while (v.first_tap < s.tap_step && distance % s.stride != 0) {
        ++v.first_tap;
        distance -= s.dilation;
    }
    bool has_taps = v.first_tap < s.tap_step && v.first_tap < s.filter;
    v.pixels = (s.pixel_size - residue + s.stride - 1) / s.stride;
    v.taps = has_taps ? CEIL_DIV(s.filter - v.first_tap, s.tap_step) : 0;
    v.start = distance / s.stride;
#else
    v.start = -s.pad;
#endif
    v.by_pixels = v.pixels == s.pixels ? s.by_pixels[0] : s.by_pixels[1];
    v.by_taps = v.taps == s.taps ? s.by_taps[0] : s.by_taps[1];
    return v;
}

FUNCTION View view_of(Geometry g, int part) {
    View v;
    int residue_w = 0, residue_h = 0, residue_d = 0;
#if BACKWARD
    residue_w = part % g.w.classes;
    part /= g.w.classes;
    residue_h = part % g.h.classes;
    part /= g.h.classes;
    residue_d = part % g.d.classes;
    part /= g.d.classes;
#endif
    v.w = class_view(g.w, residue_w);
    v.h = class_view(g.h, residue_h);
    v.d = class_view(g.d, residue_d);
    int pixels = g.batch * v.d.pixels * v.h.pixels * v.w.pixels;
    int taps = g.channels * v.d.taps * v.h.taps * v.w.taps;
    v.m = g.m;
    v.n = WRW ? taps : pixels;
    v.k = WRW ? pixels : taps;
    v.a_first = part * g.a_group;
    v.b_first = part * g.b_group;
    v.c_first = part * g.c_group;
    v.bias_first = part * g.m;
    v.a_m = g.a_m;
    v.c_m = g.c_m;
    v.in_d = g.d.size;
    v.in_h = g.h.size;
    v.in_w = g.w.size;
    return v;
}

// Splits `rest` by the size of its fastest part: sets that part, and leaves the rest.
#define SPLIT(part, rest, by, size)                \
    {                                              \
        int whole = divide(rest, by);              \
        part = (rest) - whole * (size);            \
        rest = whole;                              \
    }

FUNCTION Place pixel_place(Geometry g, View v, int rest) {
    Place place;
    int d = 0, h, w;
    SPLIT(w, rest, v.w.by_pixels, v.w.pixels)
    SPLIT(h, rest, v.h.by_pixels, v.h.pixels)
#if NDIM == 3
    SPLIT(d, rest, v.d.by_pixels, v.d.pixels)
#endif
    place.w = w * g.w.unit + v.w.start;
    place.h = h * g.h.unit + v.h.start;
    place.offset = rest * g.gathered_n + place.h * g.h.gathered + place.w * g.w.gathered;
    place.other = rest * g.pixel_n + (h * g.h.classes + v.h.first_pixel) * g.h.pixel +
                  (w * g.w.classes + v.w.first_pixel) * g.w.pixel;
#if NDIM == 3
    place.d = d * g.d.unit + v.d.start;
    place.offset += place.d * g.d.gathered;
    place.other += (d * g.d.classes + v.d.first_pixel) * g.d.pixel;
#endif
    return place;
}

FUNCTION Place tap_place(Geometry g, View v, int rest) {
    Place place;
    int c, d = 0, h, w;
#if CHANNELS_LAST
    SPLIT(c, rest, g.by_channels, g.channels)
#endif
    SPLIT(w, rest, v.w.by_taps, v.w.taps)
    SPLIT(h, rest, v.h.by_taps, v.h.taps)
#if NDIM == 3
    SPLIT(d, rest, v.d.by_taps, v.d.taps)
#endif
#if !CHANNELS_LAST
    c = rest;
#endif
    place.w = w * g.w.tap_unit;
    place.h = h * g.h.tap_unit;
    place.offset = c * g.gathered_c + place.h * g.h.gathered + place.w * g.w.gathered;
    place.other = c * g.weight_c + (h * g.h.tap_step + v.h.first_tap) * g.h.weight +
                  (w * g.w.tap_step + v.w.first_tap) * g.w.weight;
#if NDIM == 3
    place.d = d * g.d.tap_unit;
    place.offset += place.d * g.d.gathered;
    place.other += (d * g.d.tap_step + v.d.first_tap) * g.d.weight;
#endif
    return place;
}

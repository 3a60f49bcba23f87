// Naive direct convolution: thread t of the grid computes the output elements t, t + T, t + 2T, ...
// (T threads in all), each by its defining sum. Tensors are read through strides, so that any layout
// will do; offsets have 64 bits.
//
//   F  y[n,k,o]  = sum over c,f of x[n,c, o*stride - pad + f*dilation] * w[k,c,f]
//   B  x[n,c,i]  = sum over k,f of y[n,k, (i + pad - f*dilation) / stride] * w[k,c,f], where it divides
//   W  w[k,c,f]  = sum over n,o of y[n,k,o] * x[n,c, o*stride - pad + f*dilation]
#include "../conv.h"

typedef struct {
    wide n, c, d, h, w;
} Strides;

typedef struct {
    Strides x, w, y;
} AllStrides;

FUNCTION int input_place(int out, int filter, int stride, int pad, int dilation) {
    return out * stride - pad + filter * dilation;
}

// The output place that reads input place `in` through a filter place; -1 if there is none.
FUNCTION int output_place(int in, int filter, int stride, int pad, int dilation, int size) {
    int scaled = in + pad - filter * dilation;
    if (scaled < 0 || scaled % stride != 0) return -1;
    return scaled / stride < size ? scaled / stride : -1;
}

#if FORWARD
FUNCTION float element(GLOBAL const elem* x, GLOBAL const elem* w, int n, int k, int od, int oh, int ow,
                       ConvSizes s, AllStrides at) {
    int channels = s.in_channels / s.groups;
    int first = k / (s.out_channels / s.groups) * channels;
    float sum = 0.0f;
    for (int c = 0; c < channels; ++c)
        for (int fd = 0; fd < s.filter_d; ++fd) {
            int d = input_place(od, fd, s.stride_d, s.pad_d, s.dilation_d);
            if (d < 0 || d >= s.in_d) continue;
            for (int fh = 0; fh < s.filter_h; ++fh) {
                int h = input_place(oh, fh, s.stride_h, s.pad_h, s.dilation_h);
                if (h < 0 || h >= s.in_h) continue;
                for (int fw = 0; fw < s.filter_w; ++fw) {
                    int v = input_place(ow, fw, s.stride_w, s.pad_w, s.dilation_w);
                    if (v < 0 || v >= s.in_w) continue;
                    wide xi = n * at.x.n + (first + c) * at.x.c + d * at.x.d + h * at.x.h + v * at.x.w;
                    wide wi = k * at.w.n + c * at.w.c + fd * at.w.d + fh * at.w.h + fw * at.w.w;
                    sum = FMA(WIDEN(x[xi]), WIDEN(w[wi]), sum);
                }
            }
        }
    return sum;
}
#elif BACKWARD
FUNCTION float element(GLOBAL const elem* w, GLOBAL const elem* y, int n, int c, int d, int h, int v,
                       ConvSizes s, AllStrides at) {
    int in_group = s.in_channels / s.groups, filters = s.out_channels / s.groups;
    int first = c / in_group * filters;
    float sum = 0.0f;
    for (int k = 0; k < filters; ++k)
        for (int fd = 0; fd < s.filter_d; ++fd) {
            int od = output_place(d, fd, s.stride_d, s.pad_d, s.dilation_d, s.out_d);
            if (od < 0) continue;
            for (int fh = 0; fh < s.filter_h; ++fh) {
                int oh = output_place(h, fh, s.stride_h, s.pad_h, s.dilation_h, s.out_h);
                if (oh < 0) continue;
                for (int fw = 0; fw < s.filter_w; ++fw) {
                    int ow = output_place(v, fw, s.stride_w, s.pad_w, s.dilation_w, s.out_w);
                    if (ow < 0) continue;
                    wide yi = n * at.y.n + (first + k) * at.y.c + od * at.y.d + oh * at.y.h + ow * at.y.w;
                    wide wi = (first + k) * at.w.n + c % in_group * at.w.c + fd * at.w.d + fh * at.w.h +
                              fw * at.w.w;
                    sum = FMA(WIDEN(y[yi]), WIDEN(w[wi]), sum);
                }
            }
        }
    return sum;
}
#else
FUNCTION float element(GLOBAL const elem* x, GLOBAL const elem* y, int k, int c, int fd, int fh, int fw,
                       ConvSizes s, AllStrides at) {
    int channel = k / (s.out_channels / s.groups) * (s.in_channels / s.groups) + c;
    float sum = 0.0f;
    for (int n = 0; n < s.batch; ++n)
        for (int od = 0; od < s.out_d; ++od) {
            int d = input_place(od, fd, s.stride_d, s.pad_d, s.dilation_d);
            if (d < 0 || d >= s.in_d) continue;
            for (int oh = 0; oh < s.out_h; ++oh) {
                int h = input_place(oh, fh, s.stride_h, s.pad_h, s.dilation_h);
                if (h < 0 || h >= s.in_h) continue;
                // A row is summed apart: one sum of millions of terms would lose digits.
                float row = 0.0f;
                for (int ow = 0; ow < s.out_w; ++ow) {
                    int v = input_place(ow, fw, s.stride_w, s.pad_w, s.dilation_w);
                    if (v < 0 || v >= s.in_w) continue;
                    wide xi = n * at.x.n + channel * at.x.c + d * at.x.d + h * at.x.h + v * at.x.w;
                    wide yi = n * at.y.n + k * at.y.c + od * at.y.d + oh * at.y.h + ow * at.y.w;
                    row = FMA(WIDEN(x[xi]), WIDEN(y[yi]), row);
                }
                sum += row;
            }
        }
    return sum;
}
#endif

// Splits *rest by a size: returns what remains below it.
#define SPLIT(rest, size) (int)((rest) % (size)); (rest) /= (size)

KERNEL conv_naive(
#if FORWARD
    GLOBAL const elem* RESTRICT x, GLOBAL const elem* RESTRICT w, GLOBAL elem* RESTRICT y,
#elif BACKWARD
    GLOBAL elem* RESTRICT x, GLOBAL const elem* RESTRICT w, GLOBAL const elem* RESTRICT y,
#else
    GLOBAL const elem* RESTRICT x, GLOBAL elem* RESTRICT w, GLOBAL const elem* RESTRICT y,
#endif
    GLOBAL const elem* RESTRICT bias, const ConvSizes s, const AllStrides at) {
    wide index = (wide)BLOCK_X * THREADS + THREAD, step = (wide)BLOCKS_X * THREADS;
#if FORWARD
    wide size = (wide)s.batch * s.out_channels * s.out_d * s.out_h * s.out_w;
    for (; index < size; index += step) {
        wide rest = index;
        int v = SPLIT(rest, s.out_w);
        int h = SPLIT(rest, s.out_h);
        int d = SPLIT(rest, s.out_d);
        int k = SPLIT(rest, s.out_channels);
        int n = (int)rest;
        float added = bias ? WIDEN(bias[k]) : 0.0f;
        wide place = n * at.y.n + k * at.y.c + d * at.y.d + h * at.y.h + v * at.y.w;
        store_scaled(y, place, element(x, w, n, k, d, h, v, s, at), s.alpha, s.beta, added);
    }
#elif BACKWARD
    wide size = (wide)s.batch * s.in_channels * s.in_d * s.in_h * s.in_w;
    for (; index < size; index += step) {
        wide rest = index;
        int v = SPLIT(rest, s.in_w);
        int h = SPLIT(rest, s.in_h);
        int d = SPLIT(rest, s.in_d);
        int c = SPLIT(rest, s.in_channels);
        int n = (int)rest;
        wide place = n * at.x.n + c * at.x.c + d * at.x.d + h * at.x.h + v * at.x.w;
        store_scaled(x, place, element(w, y, n, c, d, h, v, s, at), s.alpha, s.beta, 0.0f);
    }
#else
    int channels = s.in_channels / s.groups;
    wide size = (wide)s.out_channels * channels * s.filter_d * s.filter_h * s.filter_w;
    for (; index < size; index += step) {
        wide rest = index;
        int fw = SPLIT(rest, s.filter_w);
        int fh = SPLIT(rest, s.filter_h);
        int fd = SPLIT(rest, s.filter_d);
        int c = SPLIT(rest, channels);
        int k = (int)rest;
        wide place = k * at.w.n + c * at.w.c + fd * at.w.d + fh * at.w.h + fw * at.w.w;
        store_scaled(w, place, element(x, y, k, c, fd, fh, fw, s, at), s.alpha, s.beta, 0.0f);
    }
#endif
}

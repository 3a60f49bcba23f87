// Convolution through the Fourier transform, for large filters: tiles of SIZE x SIZE inputs overlap,
// each gives (SIZE - reach) x (SIZE - reach) outputs, where reach = (filter - 1) * dilation
// (overlap-save). Real tiles have SIZE * (SIZE / 2 + 1) complex places.
//
//   input tile  --transform-->  V[place][group][re, im of from][tile]   \
//                                                                        one GEMM each  -->  M
//   filter  --transform-->  U[place][group][re, im of to][re, im of from]  /
//
//   M[place][group][re, im of to][tile]  --inverse transform-->  output tile
//
// U holds  | Wr  Wi |  so that a real GEMM gives the product with the conjugate, a correlation.
//          |-Wi  Wr |
// A block transforms TILES tiles (or filters), which lie along its lanes; a thread does a whole row,
// then a whole column, in registers. Places stay in the order in which the transform leaves them
// (bits of the row's frequency reversed), since the product doesn't care.
#include "../conv.h"
#include "../as_forward.h"

#ifndef CHANNELS_LAST
#define CHANNELS_LAST 0
#endif
#ifndef SIZE
#define SIZE 16
#endif
#ifndef TILES
#define TILES 8
#endif
#define HALF (SIZE / 2 + 1)

typedef struct {
    int tiles_w, tiles_h, tiles;  // tiles: of all images
    int out;                      // outputs along one side of a tile
} Work;

// Real and imaginary parts of a row or column in registers.
typedef struct {
    float re[SIZE], im[SIZE];
} Line;

FUNCTION int reversed(int index) {
    int result = 0;
    UNROLL for (int bit = 1; bit < SIZE; bit *= 2) {
        result = 2 * result + (index & 1);
        index /= 2;
    }
    return result;
}

// cos and sin of 2 pi step / SIZE, for step below SIZE / 2; all uses are unrolled.
#define COSINES                                                                                \
    {1.0f, 0.98078528f, 0.92387953f, 0.83146961f, 0.70710678f, 0.55557023f, 0.38268343f,       \
     0.19509032f, 0.0f, -0.19509032f, -0.38268343f, -0.55557023f, -0.70710678f, -0.83146961f,  \
     -0.92387953f, -0.98078528f}
#define SINES                                                                                  \
    {0.0f, 0.19509032f, 0.38268343f, 0.55557023f, 0.70710678f, 0.83146961f, 0.92387953f,       \
     0.98078528f, 1.0f, 0.98078528f, 0.92387953f, 0.83146961f, 0.70710678f, 0.55557023f,       \
     0.38268343f, 0.19509032f}

// One butterfly's distance: `apart` elements. Direction -1 is forward, +1 inverse.
#define DECIMATE_IN_FREQUENCY(line, apart, direction)                                          \
    UNROLL for (int base = 0; base < SIZE; base += 2 * (apart))                                \
        UNROLL for (int j = 0; j < (apart); ++j) {                                             \
        float re = line.re[base + j] - line.re[base + j + (apart)];                            \
        float im = line.im[base + j] - line.im[base + j + (apart)];                            \
        float c = cosines[j * (16 / (apart))], s = (direction)*sines[j * (16 / (apart))];      \
        line.re[base + j] += line.re[base + j + (apart)];                                      \
        line.im[base + j] += line.im[base + j + (apart)];                                      \
        line.re[base + j + (apart)] = re * c - im * s;                                         \
        line.im[base + j + (apart)] = re * s + im * c;                                         \
    }
#define DECIMATE_IN_TIME(line, apart, direction)                                               \
    UNROLL for (int base = 0; base < SIZE; base += 2 * (apart))                                \
        UNROLL for (int j = 0; j < (apart); ++j) {                                             \
        float c = cosines[j * (16 / (apart))], s = (direction)*sines[j * (16 / (apart))];      \
        float re = line.re[base + j + (apart)] * c - line.im[base + j + (apart)] * s;          \
        float im = line.re[base + j + (apart)] * s + line.im[base + j + (apart)] * c;          \
        line.re[base + j + (apart)] = line.re[base + j] - re;                                  \
        line.im[base + j + (apart)] = line.im[base + j] - im;                                  \
        line.re[base + j] += re;                                                               \
        line.im[base + j] += im;                                                               \
    }

// From natural order to reversed bits.
FUNCTION Line to_reversed(Line line, float direction) {
    const float cosines[16] = COSINES, sines[16] = SINES;
#if SIZE == 32
    DECIMATE_IN_FREQUENCY(line, 16, direction)
#endif
    DECIMATE_IN_FREQUENCY(line, 8, direction)
    DECIMATE_IN_FREQUENCY(line, 4, direction)
    DECIMATE_IN_FREQUENCY(line, 2, direction)
    DECIMATE_IN_FREQUENCY(line, 1, direction)
    return line;
}

// From reversed bits to natural order.
FUNCTION Line from_reversed(Line line, float direction) {
    const float cosines[16] = COSINES, sines[16] = SINES;
    DECIMATE_IN_TIME(line, 1, direction)
    DECIMATE_IN_TIME(line, 2, direction)
    DECIMATE_IN_TIME(line, 4, direction)
    DECIMATE_IN_TIME(line, 8, direction)
#if SIZE == 32
    DECIMATE_IN_TIME(line, 16, direction)
#endif
    return line;
}

// Where (tile or pair, row, frequency) lies in local memory.
#define SHARED(lane, row, frequency) ((((row)*HALF) + (frequency)) * TILES + (lane))

// Transforms a block's tiles: each thread brings a row of real numbers; threads whose row is below
// HALF leave with the column of that frequency, its places in reversed order.
FUNCTION Line transform(Line line, int lane, int row, LOCAL_POINTER float* re,
                        LOCAL_POINTER float* im) {
    line = to_reversed(line, -1.0f);
    UNROLL for (int i = 0; i < SIZE; ++i) {
        int frequency = reversed(i);
        if (frequency < HALF) {
            re[SHARED(lane, row, frequency)] = line.re[i];
            im[SHARED(lane, row, frequency)] = line.im[i];
        }
    }
    BARRIER();
    if (row < HALF) {
        UNROLL for (int i = 0; i < SIZE; ++i) {
            line.re[i] = re[SHARED(lane, i, row)];
            line.im[i] = im[SHARED(lane, i, row)];
        }
        line = to_reversed(line, -1.0f);
    }
    return line;
}

KERNEL fft_input(FROM_W_TO, GLOBAL float* RESTRICT transformed, const ConvSizes s, const AsForward f,
                 const Work work) {
    LOCAL float re[TILES * SIZE * HALF];
    LOCAL float im[TILES * SIZE * HALF];
    int lane = THREAD % TILES, row = THREAD / TILES;
    int tile = BLOCK_X * TILES + lane;
    int channel = BLOCK_Y;  // over all groups
    int group = channel / f.from_channels, own = channel - group * f.from_channels;
    int n = tile / (work.tiles_h * work.tiles_w);
    int rest = tile - n * work.tiles_h * work.tiles_w;
    int h = rest / work.tiles_w * work.out - f.pad_h + row;
    int first = rest % work.tiles_w * work.out - f.pad_w;
    int all = f.from_channels * s.groups;
    int is_row = tile < work.tiles && h >= 0 && h < f.from_h;
    Line line;
    UNROLL for (int i = 0; i < SIZE; ++i) {
        int v = first + i;
        float value = 0.0f;
        if (is_row && v >= 0 && v < f.from_w)
            value = WIDEN(input[CHANNELS_LAST ? ((n * f.from_h + h) * f.from_w + v) * all + channel
                                              : ((n * all + channel) * f.from_h + h) * f.from_w + v]);
        line.re[i] = value;
        line.im[i] = 0.0f;
    }
    line = transform(line, lane, row, re, im);
    if (row < HALF && tile < work.tiles)
        UNROLL for (int i = 0; i < SIZE; ++i) {
            int at = (((i * HALF + row) * s.groups + group) * 2 * f.from_channels + own) * work.tiles + tile;
            transformed[at] = line.re[i];
            transformed[at + f.from_channels * work.tiles] = line.im[i];
        }
}

KERNEL fft_filter(FROM_W_TO, GLOBAL float* RESTRICT transformed, const ConvSizes s, const AsForward f) {
    LOCAL float re[TILES * SIZE * HALF];
    LOCAL float im[TILES * SIZE * HALF];
    int lane = THREAD % TILES, row = THREAD / TILES;
    int from = BLOCK_X * TILES + lane;
    int group = BLOCK_Y / f.to_channels, to = BLOCK_Y - group * f.to_channels;
    int r = row / s.dilation_h;
    int is_row = from < f.from_channels && row == r * s.dilation_h && r < s.filter_h;
    Line line;
    UNROLL for (int i = 0; i < SIZE; ++i) {
        int c = i / s.dilation_w;
        float value = 0.0f;
        if (is_row && i == c * s.dilation_w && c < s.filter_w)
            value = WIDEN(w[filter_place(f, group, to, from, r * s.filter_w + c)]);
        line.re[i] = value;
        line.im[i] = 0.0f;
    }
    line = transform(line, lane, row, re, im);
    if (row < HALF && from < f.from_channels) {
        int columns = 2 * f.from_channels;
        UNROLL for (int i = 0; i < SIZE; ++i) {
            int at = (((i * HALF + row) * s.groups + group) * 2 * f.to_channels + to) * columns + from;
            int below = at + f.to_channels * columns;
            transformed[at] = line.re[i];
            transformed[at + f.from_channels] = line.im[i];
            transformed[below] = -line.im[i];
            transformed[below + f.from_channels] = line.re[i];
        }
    }
}

KERNEL fft_output(FROM_W_TO, GLOBAL const elem* RESTRICT bias, GLOBAL const float* RESTRICT product,
                  const ConvSizes s, const AsForward f, const Work work) {
    LOCAL float re[TILES * SIZE * HALF];
    LOCAL float im[TILES * SIZE * HALF];
    int lane = THREAD % TILES, row = THREAD / TILES;
    int tile = BLOCK_X * TILES + lane;
    int channel = BLOCK_Y;
    int group = channel / f.to_channels, own = channel - group * f.to_channels;
    Line line;
    if (row < HALF) {
        UNROLL for (int i = 0; i < SIZE; ++i) {
            int at = (((i * HALF + row) * s.groups + group) * 2 * f.to_channels + own) * work.tiles + tile;
            line.re[i] = tile < work.tiles ? product[at] : 0.0f;
            line.im[i] = tile < work.tiles ? product[at + f.to_channels * work.tiles] : 0.0f;
        }
        line = from_reversed(line, 1.0f);
        UNROLL for (int i = 0; i < SIZE; ++i) {
            re[SHARED(lane, i, row)] = line.re[i];
            im[SHARED(lane, i, row)] = line.im[i];
        }
    }
    BARRIER();
    UNROLL for (int i = 0; i < SIZE; ++i) {
        int mirrored = i < HALF ? i : SIZE - i;
        line.re[i] = re[SHARED(lane, row, mirrored)];
        line.im[i] = i < HALF ? im[SHARED(lane, row, mirrored)] : -im[SHARED(lane, row, mirrored)];
    }
    line = to_reversed(line, 1.0f);
    int n = tile / (work.tiles_h * work.tiles_w);
    int rest = tile - n * work.tiles_h * work.tiles_w;
    int h = rest / work.tiles_w * work.out + row;
    int first = rest % work.tiles_w * work.out;
    int all = f.to_channels * s.groups;
    float added = bias ? WIDEN(bias[channel]) : 0.0f;
    float scale = s.alpha / (SIZE * SIZE);
    if (tile < work.tiles && row < work.out && h < f.to_h)
        UNROLL for (int i = 0; i < SIZE; ++i) {
            int column = reversed(i), v = first + column;
            if (column < work.out && v < f.to_w) {
                int at = CHANNELS_LAST ? ((n * f.to_h + h) * f.to_w + v) * all + channel
                                       : ((n * all + channel) * f.to_h + h) * f.to_w + v;
                store_scaled(output, at, line.re[i], scale, s.beta, added);
            }
        }
}

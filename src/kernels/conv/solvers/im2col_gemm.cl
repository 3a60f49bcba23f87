// The column matrix of some images, for a matrix multiplication that follows: a row for each tap, a
// column for each pixel, the groups one behind the other.
//
//                 pixels of the images (x of the grid, neighbouring threads)
//            +------------------------------------+
//       taps |  gathered[place(tap) + place(pixel)],      a block writes TAPS rows of
//  (y of the |  0 outside the tensor                      THREADS columns
//   grid)    +------------------------------------+
#include "../gather.h"
#ifndef TAPS
#define TAPS 8
#endif

KERNEL gather_columns(
    GLOBAL const elem* RESTRICT gathered, GLOBAL elem* RESTRICT columns, const Geometry g,
    const int first) {
    const View v = view_of(g, BLOCK_Z);
    int taps = WRW ? v.n : v.k, pixels = WRW ? v.k : v.n;
    int pixel = BLOCK_X * THREADS + THREAD;
    if (pixel >= pixels) return;
    Place column = pixel_place(g, v, pixel);
    int from = first + v.b_first + column.offset;
    int last = MIN(taps, (BLOCK_Y + 1) * TAPS);
    for (int tap = BLOCK_Y * TAPS; tap < last; ++tap) {
        Place row = tap_place(g, v, tap);
        bool inside = (uint)(row.h + column.h) < (uint)v.in_h && (uint)(row.w + column.w) < (uint)v.in_w;
#if NDIM == 3
        inside = inside && (uint)(row.d + column.d) < (uint)v.in_d;
#endif
        elem value = NARROW(0.0f);
        if (inside) value = gathered[from + row.offset];
        columns[((wide)BLOCK_Z * taps + tap) * pixels + pixel] = value;
    }
}

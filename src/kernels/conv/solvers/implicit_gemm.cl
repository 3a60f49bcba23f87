// Implicit GEMM: the columns of the column matrix are gathered while they are multiplied (tile.h).
// All directions gather from one tensor at (place of a pixel) + (place of a tap), so that rows and
// columns of B are one of the two each:
//
//         A   M                 B (gathered)   K rows   N columns        C
//   F     w   out channels      x              taps     pixels of y      y
//   B     w   in channels       y              taps     pixels of x      x
//   W     y   out channels      x              pixels   taps             w
#include "../gather.h"

#if WRW
#define row_place pixel_place
#define column_place tap_place
#else
#define row_place tap_place
#define column_place pixel_place
#endif

#include "../../gemm/tile.h"

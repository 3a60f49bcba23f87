// How tile.h sees what it multiplies. A file that includes tile.h describes its matrices by
//
//   C[m][n] = sum over k of A[m][k] * B[k][n]
//   A[m][k] = a[v.a_first + m * v.a_m + row.other]           row    = row_place(k)
//   B[k][n] = b[v.b_first + row.offset + column.offset]      column = column_place(n)
//   C[m][n] = c[v.c_first + m * v.c_m + column.other]
//
// Where CHECKED, B[k][n] is 0 unless the sums of the rows' and columns' d, h, w lie in the box
// v.in_d, v.in_h, v.in_w: the zeros around a tensor that is gathered from.
//
// That file defines Geometry (a kernel argument), View (what one part of the grid's y sees, with
// the members above and m, n, k), view_of, row_place and column_place.
#ifndef NDIM
#define NDIM 2
#endif
#ifndef CHECKED
#define CHECKED 1
#endif

typedef struct __attribute__((aligned(16))) {
    int offset, other, h, w;
#if NDIM == 3
    int d;
#endif
} Place;

// A row or column outside its matrix: `other` is below 0 only here, and no sum with h is in the box.
FUNCTION Place nowhere(void) {
    Place place;
    place.offset = 0;
    place.other = -1;
    place.h = -(1 << 30);
    place.w = 0;
#if NDIM == 3
    place.d = 0;
#endif
    return place;
}

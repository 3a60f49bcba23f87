// Matrices in memory as they are, multiplied by tiles (tile.h). K and N may each be an axis in two
// parts, such as images and their pixels:
//
//   A[m][k] = a[a_first + part * a_part + m * a_m + (k / k_inner) * a_outer + (k % k_inner) * a_k]
//   B[k][n] = b[b_first + part * b_part + the like for k + the like for n]
//   C[m][n] = c[part * c_part + m * c_m + (n / n_inner) * c_outer + (n % n_inner) * c_n]
#define CHECKED 0
#include "../place.h"

typedef struct {
    int m, n, k, k_inner, n_inner;
    int a_m, a_k, a_outer, a_part, a_first;
    int b_k, b_k_outer, b_n, b_n_outer, b_part, b_first;
    int c_m, c_n, c_outer, c_part;
    FastDivisor by_k_inner, by_n_inner;
} Geometry;

typedef struct {
    int m, n, k;
    int a_first, b_first, c_first, bias_first, a_m, c_m;
} View;

FUNCTION View view_of(Geometry g, int part) {
    View v;
    v.m = g.m;
    v.n = g.n;
    v.k = g.k;
    v.a_first = g.a_first + part * g.a_part;
    v.b_first = g.b_first + part * g.b_part;
    v.c_first = part * g.c_part;
    v.bias_first = part * g.m;
    v.a_m = g.a_m;
    v.c_m = g.c_m;
    return v;
}

FUNCTION Place row_place(Geometry g, View v, int k) {
    int outer = divide(k, g.by_k_inner), inner = k - outer * g.k_inner;
    Place place = nowhere();
    place.other = outer * g.a_outer + inner * g.a_k;
    place.offset = outer * g.b_k_outer + inner * g.b_k;
    return place;
}

FUNCTION Place column_place(Geometry g, View v, int n) {
    int outer = divide(n, g.by_n_inner), inner = n - outer * g.n_inner;
    Place place = nowhere();
    place.other = outer * g.c_outer + inner * g.c_n;
    place.offset = outer * g.b_n_outer + inner * g.b_n;
    return place;
}

#include "../tile.h"

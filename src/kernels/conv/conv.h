// What the convolution kernels share: the sizes of a problem, as foretune.kernels.conv.arguments
// packs them. A 2-D problem is a 3-D one of depth 1.
#ifndef DIRECTION
#define DIRECTION 0
#endif
#define FORWARD (DIRECTION == 0)
#define BACKWARD (DIRECTION == 1)
#define WRW (DIRECTION == 2)

typedef struct {
    int batch, in_channels, out_channels, groups;
    int in_d, in_h, in_w;
    int out_d, out_h, out_w;
    int filter_d, filter_h, filter_w;
    int stride_d, stride_h, stride_w;
    int pad_d, pad_h, pad_w;
    int dilation_d, dilation_h, dilation_w;
    float alpha, beta;
} ConvSizes;

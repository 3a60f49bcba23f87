// A forward convolution, or backward data with a stride of 1 seen as one: `from` is read, `to` is
// written, channels are those of a group. Packed by foretune.kernels.conv.as_forward.
typedef struct {
    int from_channels, to_channels;
    int from_h, from_w, to_h, to_w;
    int pad_h, pad_w;
    // Element of the filter for (group, to, from, tap): filter_first + the sum of index * step.
    int filter_first, filter_group, filter_to, filter_from, filter_tap;
} AsForward;

FUNCTION int filter_place(AsForward f, int group, int to, int from, int tap) {
    return f.filter_first + group * f.filter_group + to * f.filter_to + from * f.filter_from +
           tap * f.filter_tap;
}

#if DIRECTION == 0
#define FROM_W_TO                                                                       \
    GLOBAL const elem *RESTRICT input, GLOBAL const elem *RESTRICT w, GLOBAL elem *RESTRICT output
#else
#define FROM_W_TO                                                                       \
    GLOBAL elem *RESTRICT output, GLOBAL const elem *RESTRICT w, GLOBAL const elem *RESTRICT input
#endif

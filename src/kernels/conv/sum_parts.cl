// Adds up what blocks summed in parts: output[i] = alpha * sum over p of parts[p][i] + beta * output[i].
// One thread for each element, so that the order of adding is always the same.

KERNEL sum_parts(GLOBAL const float* RESTRICT parts, GLOBAL elem* RESTRICT output, const int size,
                 const int count, const float alpha, const float beta) {
    int index = BLOCK_X * THREADS + THREAD;
    if (index >= size) return;
    float sum = 0.0f;
    for (int part = 0; part < count; ++part) sum += parts[(wide)part * size + index];
    store_scaled(output, index, sum, alpha, beta, 0.0f);
}

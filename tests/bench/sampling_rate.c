/* sampling_rate.c - how long drawing the next tokens of texts takes: sampling_rate VOCAB THREADS
 * ROUNDS
 *
 * Prints a line for each of 1, 8 and 64 texts with each of the settings in the table below: the
 * median of the rounds in ms, for all texts together and for one.  Logits are normal deviates;
 * peaked ones have one token in 2000 that is about 10 higher, as those of a trained model. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/median.h"
#include "base/philox.h"
#include "train/sampling.h"

enum { TEXTS = 64 };

static const struct {
    const char *name;
    struct config_generate how;
    int is_peaked;
} rows[] = {
    {"T=0", {.top_p = 1, .repetition_penalty = 1}, 0},
    {"T=0.8", {.temperature = 0.8, .top_p = 1, .repetition_penalty = 1}, 0},
    {"top_k=50", {.temperature = 0.8, .top_k = 50, .top_p = 1, .repetition_penalty = 1}, 0},
    {"top_p=0.95", {.temperature = 0.8, .top_p = 0.95, .repetition_penalty = 1}, 0},
    {"top_p=0.95, peaked", {.temperature = 0.8, .top_p = 0.95, .repetition_penalty = 1}, 1},
};

static void fill(float *logits, int64_t elems, int is_peaked)
{
    for (int64_t i = 0; i < elems; i++) {
        int is_peak = is_peaked && philox_u64(9, (uint64_t)i) % 2000 == 0;
        logits[i] = 2 * philox_normal(5, (uint64_t)i);
        if (is_peak)
            logits[i] += 10 + 2 * philox_normal(6, (uint64_t)i);
    }
}

/* Milliseconds for the tokens of so many texts. */
static double draw_all(struct sampling **sampling, const struct config_generate *how, float *logits,
                       int64_t vocab, int texts, int threads)
{
    int64_t start = clock_ns();
#pragma omp parallel for num_threads(texts > 1 ? threads : 1) schedule(static, 1)
    for (int t = 0; t < texts; t++)
        sampling_draw(sampling[omp_get_thread_num()], how, logits + t * vocab, NULL, 0,
                      (double)(philox_u64(7, (uint64_t)t) >> 11) * 0x1p-53);
    return (double)(clock_ns() - start) * 1e-6;
}

static void measure(struct sampling **sampling, const struct config_generate *how, int64_t vocab,
                    const float *given, int threads, int rounds, const char *name)
{
    float *logits = array_make((size_t)vocab * TEXTS, sizeof *logits);
    double *ms = array_make((size_t)rounds, sizeof *ms);
    for (int texts = 1; texts <= TEXTS; texts *= 8) {
        for (int k = 0; k < rounds; k++) {
            memcpy(logits, given, (size_t)texts * (size_t)vocab * sizeof *logits);
            ms[k] = draw_all(sampling, how, logits, vocab, texts, threads);
        }
        double median = median_mean(ms, rounds);
        printf("%-20s %2d texts %8.3f ms, %.3f a text\n", name, texts, median, median / texts);
    }
    free(logits);
    free(ms);
}

int main(int argc, char **argv)
{
    int64_t vocab = argc == 4 ? atoll(argv[1]) : 0;
    int threads = argc == 4 ? atoi(argv[2]) : 0, rounds = argc == 4 ? atoi(argv[3]) : 0;
    if (vocab < 1 || threads < 1 || rounds < 1) {
        fprintf(stderr, "sampling_rate VOCAB THREADS ROUNDS\n");
        return 1;
    }
    float *given = array_make((size_t)vocab * TEXTS, sizeof *given);
    struct sampling **sampling = array_make((size_t)threads, sizeof(struct sampling *));
    for (int t = 0; t < threads; t++)
        sampling[t] = sampling_create(vocab);
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        fill(given, vocab * TEXTS, rows[r].is_peaked);
        measure(sampling, &rows[r].how, vocab, given, threads, rounds, rows[r].name);
    }
    for (int t = 0; t < threads; t++)
        sampling_destroy(sampling[t]);
    free(sampling);
    free(given);
    return 0;
}

/* Compares kernels with plain loops in double; see check_kernels.py. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activations.h"
#include "dropout.h"
#include "gather.h"
#include "gemm.h"
#include "isa.h"
#include "losses.h"
#include "norm.h"
#include "pool.h"
#include "rnn.h"
#include "steps.h"

#define MOST 40000
static float A[MOST], B[MOST], C[MOST], D[MOST], E[MOST];
static double W[MOST];
static int failures;

static uint32_t state = 1;
static float number(void) { /* in (-2, 2) */
    state = state * 1664525u + 1013904223u;
    return (float)((double)(state >> 8) / (1 << 22) - 2.0);
}
static void fill(float *x, pg_int n) {
    for (pg_int i = 0; i < n; i++) x[i] = number();
}

/* Relative to the largest, or to `floor`: sums that cancel keep the error of their terms. */
static void compare_above(double floor, const char *what, const float *got, const double *want,
                          pg_int n, double tolerance) {
    double most = floor, worst = 0.0;
    for (pg_int i = 0; i < n; i++) most = fmax(most, fabs(want[i]));
    for (pg_int i = 0; i < n; i++) {
        double e = fabs((double)got[i] - want[i]) / most;
        if (!(e <= worst)) worst = e; /* also where it is NaN */
    }
    if (!(worst <= tolerance)) {
        printf("%s: differs by %g\n", what, worst);
        failures++;
    }
}

static void compare(const char *what, const float *got, const double *want, pg_int n,
                    double tolerance) {
    compare_above(1e-30, what, got, want, n, tolerance);
}

static void gemm(void) {
    static const pg_int sizes[] = {1, 2, 3, 7, 8, 17, 33, 64, 100};
    for (int t = 0; t < 4; t++)
        for (int i = 0; i < 9; i++)
            for (int j = 0; j < 9; j++)
                for (int l = 0; l < 9; l++) {
                    int ta = t & 1, tb = t >> 1;
                    pg_int m = sizes[i], n = sizes[j], k = sizes[l];
                    pg_int lda = (ta ? m : k) + 1, ldb = (tb ? k : n) + 2, ldc = n;
                    fill(A, (ta ? k : m) * lda);
                    fill(B, (tb ? n : k) * ldb);
                    fill(C, m * n);
                    for (pg_int r = 0; r < m; r++)
                        for (pg_int c = 0; c < n; c++) {
                            double s = 0.5 * C[r * n + c];
                            for (pg_int p = 0; p < k; p++)
                                s += (double)(ta ? A[p * lda + r] : A[r * lda + p]) *
                                     (tb ? B[c * ldb + p] : B[p * ldb + c]);
                            W[r * n + c] = s;
                        }
                    if (pg_gemm(ta, tb, m, n, k, 1.0f, A, lda, B, ldb, 0.5f, C, ldc) != PG_OK)
                        failures++;
                    compare_above(sqrt((double)k), "gemm", C, W, m * n, 1e-5);
                }
}

static double act(int a, double x) {
    switch (a) {
        case PG_ACT_RELU: return x > 0 ? x : 0;
        case PG_ACT_SIGMOID: return 1 / (1 + exp(-x));
        case PG_ACT_TANH: return tanh(x);
        case PG_ACT_SOFTPLUS: return fmax(x, 0) + log1p(exp(-fabs(x)));
        case PG_ACT_SILU: return x / (1 + exp(-x));
        case PG_ACT_MISH: return x * tanh(fmax(x, 0) + log1p(exp(-fabs(x))));
        case PG_ACT_GELU: return 0.5 * x * erfc(-x / sqrt(2.0));
        case PG_ACT_EXPONENTIAL: return exp(x);
        default: return NAN;
    }
}

static void activations(void) {
    static const int acts[] = {PG_ACT_RELU, PG_ACT_SIGMOID, PG_ACT_TANH, PG_ACT_SOFTPLUS,
                               PG_ACT_SILU, PG_ACT_MISH, PG_ACT_GELU, PG_ACT_EXPONENTIAL};
    const pg_int n = 1003;
    for (int i = 0; i < 8; i++) {
        for (pg_int k = 0; k < n; k++) {
            A[k] = 4.0f * number();
            W[k] = act(acts[i], A[k]);
        }
        pg_act_forward(acts[i], 0.0f, n, A, C);
        compare("activation", C, W, n, 1e-6);
        for (pg_int k = 0; k < n; k++) {
            B[k] = 1.0f;
            W[k] = (act(acts[i], A[k] + 1e-6) - act(acts[i], A[k] - 1e-6)) / 2e-6;
        }
        pg_act_backward(acts[i], 0.0f, n, B, A, C, D);
        compare("derivative", D, W, n, 1e-5);
    }
}

static void steps(void) {
    const pg_int n = 77;
    pg_step_params p = {0};
    p.rule = PG_STEP_ADAM, p.grad_scale = 1.0f, p.lr = 0.01f, p.beta1 = 0.9f, p.beta2 = 0.999f;
    p.eps = 1e-8f, p.weight_decay = 0.1f, p.h1 = 10.0f, p.h2 = 1000.0f;
    fill(A, n), fill(B, n);
    memset(C, 0, sizeof C), memset(D, 0, sizeof D);
    for (pg_int i = 0; i < n; i++) {
        double m = 0.1 * B[i], v = 0.001 * B[i] * (double)B[i];
        W[i] = A[i] * (1 - 0.01 * 0.1) - 0.01 * m * 10 / (sqrt(v * 1000) + 1e-8);
    }
    pg_step(&p, n, A, B, C, D, NULL);
    compare("adam", A, W, n, 1e-6);
}

static void losses(void) {
    const pg_int rows = 9, n = 13;
    double value, want = 0.0;
    fill(A, rows * n), fill(B, rows * n);
    for (pg_int r = 0; r < rows; r++) {
        double most = -1e30, sum = 0.0, total = 0.0;
        C[r] = fabsf(number());
        for (pg_int i = 0; i < n; i++) most = fmax(most, A[r * n + i]);
        for (pg_int i = 0; i < n; i++) sum += exp(A[r * n + i] - most), total += B[r * n + i];
        for (pg_int i = 0; i < n; i++) {
            double log_p = A[r * n + i] - most - log(sum);
            want -= C[r] * B[r * n + i] * log_p;
            W[r * n + i] = C[r] * (exp(log_p) * total - B[r * n + i]);
        }
    }
    if (pg_loss(PG_LOSS_SOFTMAX_CE, 0, 0, rows, n, A, B, C, 1, 0, 1.0f, D, &value) != PG_OK)
        failures++;
    compare("cross-entropy's gradient", D, W, rows * n, 1e-5);
    float got = (float)value;
    compare("cross-entropy", &got, &want, 1, 1e-5);
}

/* The same on every machine. */
static void random_numbers(void) {
    static const uint32_t want[] = {2433415114u, 4114096305u, 2782471719u, 600082903u};
    uint32_t bits[70];
    pg_rng r = {42, 7, 3};
    pg_random_bits(&r, 70, bits);
    if (memcmp(bits + 60, want, sizeof want) != 0) {
        printf("random numbers: other than elsewhere:");
        for (int i = 60; i < 64; i++) printf(" %lluu", (unsigned long long)bits[i]);
        printf("\n");
        failures++;
    }
}

static void gru(void) {
    const pg_int n = 3, t = 5, h = 7;
    pg_rnn r = {PG_RNN_GRU, 1, 0, n, t, h};
    fill(A, n * t * 3 * h), fill(B, 3 * h * h), fill(C, h);
    for (pg_int i = 0; i < n; i++) {
        double s[7] = {0}, next[7];
        for (pg_int k = 0; k < t; k++) {
            for (pg_int j = 0; j < h; j++) {
                double u[3] = {0, 0, C[j]};
                for (int g = 0; g < 3; g++)
                    for (pg_int l = 0; l < h; l++) u[g] += s[l] * B[(g * h + j) * h + l];
                const float *x = A + (i * t + k) * 3 * h;
                double z = 1 / (1 + exp(-(x[j] + u[0]))), q = 1 / (1 + exp(-(x[h + j] + u[1])));
                next[j] = z * s[j] + (1 - z) * tanh(x[2 * h + j] + q * u[2]);
            }
            for (pg_int j = 0; j < h; j++) W[(i * t + k) * h + j] = s[j] = next[j];
        }
    }
    if (pg_rnn_forward(&r, A, B, C, NULL, NULL, D, NULL, NULL) != PG_OK) failures++;
    compare("gru", D, W, n * t * h, 1e-5);
}

static void layer_norm(void) {
    const pg_int rows = 5, n = 29;
    fill(A, rows * n), fill(B, n), fill(C, n);
    for (pg_int r = 0; r < rows; r++) {
        double mean = 0.0, var = 0.0;
        for (pg_int i = 0; i < n; i++) mean += A[r * n + i] / (double)n;
        for (pg_int i = 0; i < n; i++) var += (A[r * n + i] - mean) * (A[r * n + i] - mean) / n;
        for (pg_int i = 0; i < n; i++)
            W[r * n + i] = (A[r * n + i] - mean) / sqrt(var + 1e-3) * B[i] + C[i];
    }
    pg_layer_norm(0, rows, n, 1e-3f, A, B, C, D, NULL, NULL);
    compare("layer norm", D, W, rows * n, 1e-5);
}

static void gather(void) {
    int32_t ids[] = {3, 0, 3, 2};
    memset(W, 0, sizeof W);
    fill(A, 4 * 19);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 19; j++) W[ids[i] * 19 + j] += A[i * 19 + j];
    if (pg_gather_rows_backward(5, 19, 4, ids, A, E) != PG_OK) failures++;
    compare("gather's gradient", E, W, 5 * 19, 1e-6);
    ids[1] = 5;
    if (pg_gather_rows_backward(5, 19, 4, ids, A, E) != PG_EINVAL) failures++;
}

static void count(void *sums, int part) { ((int *)sums)[part]++; }

static void threads(void) {
    static int parts[1000];
    memset(parts, 0, sizeof parts);
    for (int i = 0; i < 2000; i++) pg_parallel(1000, count, parts);
    for (int i = 0; i < 1000; i++)
        if (parts[i] != 2000) {
            printf("part %d ran %d times\n", i, parts[i]);
            failures++;
            break;
        }
}

int main(void) {
    pg_init();
    for (int n = 1; n <= 3; n++) {
        pg_set_num_threads(n);
        gemm(), activations(), steps(), losses(), random_numbers(), gru(), layer_norm(), gather();
        threads();
    }
    pg_pool_stop();
    printf("%s, %d failures\n", pg_isa_name(), failures);
    return failures != 0;
}

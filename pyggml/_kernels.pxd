# The C kernels of pyggml/kernels, header by header.

from libc.stdint cimport int32_t, uint32_t, uint64_t


cdef extern from "common.h" nogil:
    ctypedef Py_ssize_t pg_int
    enum:
        PG_OK
        PG_ENOMEM
        PG_EINVAL


cdef extern from "pool.h" nogil:
    ctypedef uint64_t pg_ftz_state
    ctypedef void (*pg_part_fn)(void *ctx, int part) noexcept nogil
    int pg_set_num_threads(int n)
    int pg_get_num_threads()
    void pg_set_thread_limit(int n)
    void pg_parallel(int n_parts, pg_part_fn fn, void *ctx)
    void pg_parallel_brief(int n_parts, pg_part_fn fn, void *ctx)
    void pg_pool_stop()
    pg_ftz_state pg_ftz_enter()
    void pg_ftz_leave(pg_ftz_state s)


cdef extern from "isa.h" nogil:
    void pg_init()
    const char *pg_isa_name()
    int pg_isa_available(const char *name)


cdef extern from "gemm.h" nogil:
    int pg_gemm(int ta, int tb, pg_int m, pg_int n, pg_int k, float alpha, const float *a,
                pg_int lda, const float *b, pg_int ldb, float beta, float *c, pg_int ldc)
    int pg_gemm_bias_act(int ta, int tb, pg_int m, pg_int n, pg_int k, float alpha, const float *a,
                         pg_int lda, const float *b, pg_int ldb, float beta, float *c, pg_int ldc,
                         const float *bias, int act, float act_param)
    int pg_gemm_batched(int ta, int tb, pg_int m, pg_int n, pg_int k, float alpha, const float *a,
                        pg_int lda, pg_int stride_a, const float *b, pg_int ldb, pg_int stride_b,
                        float beta, float *c, pg_int ldc, pg_int stride_c, pg_int batch)
    int pg_gemm_step(int ta, int tb, pg_int m, pg_int n, pg_int k, const float *a, pg_int lda,
                     const float *b, pg_int ldb, const pg_step_params *p, float *w, float *s1,
                     float *s2, float *s3)
    void pg_gemm_force(int which)
    int pg_have_blas()


cdef extern from "steps.h" nogil:
    ctypedef struct pg_step_params:
        int rule, nesterov, centered
        float lr, beta1, beta2, eps, weight_decay, h1, h2, momentum, crho, rest1, rest2
        float grad_scale, clip
    enum:
        PG_STEP_SGD
        PG_STEP_MOMENTUM
        PG_STEP_ADAM
        PG_STEP_RMSPROP
        PG_STEP_ADAGRAD
        PG_STEP_LION
    void pg_step(const pg_step_params *p, pg_int n, float *w, const float *g, float *s1, float *s2,
                 float *s3)
    double pg_sum_squares(pg_int n, const float *x)


cdef extern from "activations.h" nogil:
    enum:
        PG_ACT_LINEAR
        PG_ACT_RELU
        PG_ACT_RELU6
        PG_ACT_LEAKY_RELU
        PG_ACT_ELU
        PG_ACT_SELU
        PG_ACT_GELU
        PG_ACT_GELU_TANH
        PG_ACT_SILU
        PG_ACT_SIGMOID
        PG_ACT_HARD_SIGMOID
        PG_ACT_HARD_SWISH
        PG_ACT_TANH
        PG_ACT_SOFTPLUS
        PG_ACT_SOFTSIGN
        PG_ACT_MISH
        PG_ACT_EXPONENTIAL
        PG_ACT_AT_LEAST
        PG_ACT_AT_MOST
    int pg_act_from_y(int act)
    void pg_act_forward(int act, float param, pg_int n, const float *x, float *y)
    void pg_act_backward(int act, float param, pg_int n, const float *dy, const float *x,
                         const float *y, float *dx)
    void pg_bias_act(int act, float param, pg_int rows, pg_int n, const float *x,
                     const float *bias, float *z, float *y)
    void pg_bias_act_channels(int act, float param, pg_int batch, pg_int channels, pg_int size,
                              const float *x, const float *bias, float *z, float *y)
    int pg_sum_rows(pg_int rows, pg_int n, const float *x, pg_int ld, float beta, float *out)
    int pg_sum_channels(pg_int batch, pg_int channels, pg_int size, const float *x, float beta,
                        float *out)
    void pg_axpby(pg_int n, float alpha, const float *a, float beta, const float *b, float *c)
    int pg_copy_permuted(const pg_int *n, const pg_int *s, const float *src, float *dst)
    void pg_mul(pg_int n, const float *a, const float *b, float *c)


cdef extern from "losses.h" nogil:
    enum:
        PG_LOSS_MSE
        PG_LOSS_MAE
        PG_LOSS_HUBER
        PG_LOSS_LOG_COSH
        PG_LOSS_BCE_LOGITS
        PG_LOSS_BCE
        PG_LOSS_FOCAL_LOGITS
        PG_LOSS_FOCAL
        PG_LOSS_HINGE
        PG_LOSS_SQUARED_HINGE
        PG_LOSS_KL
        PG_LOSS_POISSON
        PG_LOSS_SOFTMAX_CE
        PG_LOSS_CE
        PG_LOSS_COSINE
    int pg_loss(int kind, float param0, float param1, pg_int rows, pg_int cols, const float *pred,
                const float *target, const float *weight, pg_int w_rs, pg_int w_cs, float scale,
                float *grad, double *loss)
    void pg_softmax(int log, pg_int rows, pg_int n, const float *x, float *y)
    void pg_softmax_backward(int log, pg_int rows, pg_int n, const float *dy, const float *y,
                             float *dx)


cdef extern from "dropout.h" nogil:
    ctypedef struct pg_rng:
        uint64_t seed, step
        uint32_t stream
    void pg_dropout_mask(const pg_rng *r, float rate, pg_int n, float *mask)
    void pg_dropout(const pg_rng *r, float rate, pg_int n, const float *x, float *y)
    void pg_random_bits(const pg_rng *r, pg_int n, uint32_t *out)
    void pg_random_uniform(const pg_rng *r, pg_int n, float *out)


cdef extern from "norm.h" nogil:
    void pg_layer_norm(int rms, pg_int rows, pg_int n, float eps, const float *x,
                       const float *gamma, const float *beta, float *y, float *mean, float *rstd)
    int pg_layer_norm_backward(int rms, pg_int rows, pg_int n, const float *dy, const float *x,
                               const float *gamma, const float *mean, const float *rstd, float *dx,
                               float *dgamma, float *dbeta)
    void pg_batch_norm(int training, pg_int batch, pg_int channels, pg_int size, float eps,
                       const float *x, const float *gamma, const float *beta, float *y,
                       float *mean, float *var)
    int pg_batch_norm_backward(int training, pg_int batch, pg_int channels, pg_int size, float eps,
                               const float *dy, const float *x, const float *gamma,
                               const float *mean, const float *var, float *dx, float *dgamma,
                               float *dbeta)


cdef extern from "conv.h" nogil:
    ctypedef struct pg_conv:
        pg_int n, ic, h, w, oc, kh, kw, oh, ow, sh, sw, ph, pw, dh, dw, groups
    pg_int pg_conv_out(pg_int size, pg_int k, pg_int stride, pg_int before, pg_int after,
                       pg_int dilation)
    int pg_conv_forward(const pg_conv *c, const float *x, const float *weights, const float *bias,
                        int act, float act_param, float *y)
    int pg_conv_backward_data(const pg_conv *c, const float *dy, const float *weights, float *dx)
    int pg_conv_backward_weight(const pg_conv *c, const float *x, const float *dy,
                                float *dweights)


cdef extern from "pooling.h" nogil:
    ctypedef struct pg_pool2d:
        pg_int planes, h, w, oh, ow, kh, kw, sh, sw, ph, pw
        int count_padding
    int pg_max_pool_forward(const pg_pool2d *p, const float *x, float *y)
    int pg_max_pool_backward(const pg_pool2d *p, const float *x, const float *dy, float *dx)
    int pg_avg_pool_forward(const pg_pool2d *p, const float *x, float *y)
    int pg_avg_pool_backward(const pg_pool2d *p, const float *dy, float *dx)


cdef extern from "rnn.h" nogil:
    enum:
        PG_RNN_LSTM
        PG_RNN_GRU
        PG_RNN_SIMPLE
    ctypedef struct pg_rnn:
        int kind, reset_after, reverse
        pg_int n, t, h
    size_t pg_rnn_workspace(const pg_rnn *r)
    int pg_rnn_forward(const pg_rnn *r, const float *xw, const float *u, const float *rbias,
                       const float *h0, const float *c0, float *hseq, float *c_last, float *ws)
    int pg_rnn_backward(const pg_rnn *r, const float *u, const float *h0, const float *c0,
                        const float *hseq, float *ws, const float *dhseq, const float *dh_last,
                        const float *dc_last, float *dxw, float *du, float *drbias, float *dh0,
                        float *dc0)


cdef extern from "gather.h" nogil:
    int pg_gather_rows(pg_int table_rows, pg_int width, const float *table, pg_int n,
                       const int32_t *ids, float *out)
    int pg_gather_rows_backward(pg_int table_rows, pg_int width, pg_int n, const int32_t *ids,
                                const float *dy, float *dtable)


cdef extern from "attention.h" nogil:
    ctypedef struct pg_attention:
        pg_int batch, heads, tq, tk, d, dv
        pg_int q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row
        pg_int o_batch, o_head, o_row
        float scale
        int causal
        pg_int past
        const float *sees
        pg_int sees_batch, sees_row
    int pg_attention_forward(const pg_attention *a, const float *q, const float *k, const float *v,
                             float *out, float *probs)
    int pg_attention_backward(const pg_attention *a, const float *q, const float *k, const float *v,
                              const float *probs, const float *dout, float *dq, float *dk,
                              float *dv)

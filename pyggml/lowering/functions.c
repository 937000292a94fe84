#include "functions.h"

#include <string.h>

#include "gather.h"
#include "gemm.h"
#include "node_common.h"

int pg_is_gradient(const struct ggml_tensor * t, const pg_function * f, int input) {
    /* Only where the function is known the user data is: that of a stepper is no note. */
    const custom_params p = params_of(t);
    return t->op == GGML_OP_CUSTOM && p.fun == f->backward[input] &&
           ((const pg_note *) p.userdata)->function == f;
}

int pg_is_gradient_of(const struct ggml_tensor * t, const pg_function * f) {
    for (int i = 0; i < PG_MAX_INPUTS; ++i) {
        if (f->backward[i] != NULL && pg_is_gradient(t, f, i)) {
            return 1;
        }
    }
    return 0;
}

#define FUNCTION                                                                                  \
    BEGIN                                                                                         \
    const pg_function * f = note->function;                                                       \
    (void) f;

/* Sources of a forward and of a backward node. */
#define IN(i) ((i) < f->n_inputs ? F(dst->src[i]) : NULL)
#define GRAD F(dst->src[0])
#define IN_BACK(i) ((i) < f->n_inputs ? F(dst->src[1 + (i)]) : NULL)
#define WORK (f->workspace != NULL ? F(dst->src[f->n_inputs]) : NULL)
#define WORK_BACK F(dst->src[1 + f->n_inputs])

/* ---- convolution ------------------------------------------------------------------------- */

static void conv(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    FUNCTION
    failed(note, pg_conv_forward(&f->u.conv, IN(0), IN(1), IN(2), f->act, f->param, F(dst)));
}

static void conv_x(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    FUNCTION
    failed(note, pg_conv_backward_data(&f->u.conv, GRAD, IN_BACK(1), F(dst)));
}

static void conv_w(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    FUNCTION
    failed(note, pg_conv_backward_weight(&f->u.conv, IN_BACK(0), GRAD, F(dst)));
}

static void conv_b(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    FUNCTION
    const pg_conv * c = &f->u.conv;
    failed(note, pg_sum_channels(c->n, c->oc, c->oh * c->ow, GRAD, 0.0f, F(dst)));
}

void pg_function_conv(pg_function * f) {
    f->forward     = conv;
    f->backward[0] = conv_x;
    f->backward[1] = conv_w;
    f->backward[2] = conv_b;
}

/* ---- pooling ----------------------------------------------------------------------------- */

static void max_pool(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    FUNCTION
    failed(note, pg_max_pool_forward(&f->u.pool, IN(0), F(dst)));
}

static void max_pool_x(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    FUNCTION
    failed(note, pg_max_pool_backward(&f->u.pool, IN_BACK(0), GRAD, F(dst)));
}

static void avg_pool(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    FUNCTION
    failed(note, pg_avg_pool_forward(&f->u.pool, IN(0), F(dst)));
}

static void avg_pool_x(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    FUNCTION
    failed(note, pg_avg_pool_backward(&f->u.pool, GRAD, F(dst)));
}

void pg_function_max_pool(pg_function * f) {
    f->forward     = max_pool;
    f->backward[0] = max_pool_x;
}

void pg_function_avg_pool(pg_function * f) {
    f->forward     = avg_pool;
    f->backward[0] = avg_pool_x;
}

/* ---- embedding --------------------------------------------------------------------------- */

static void gather(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    FUNCTION
    const struct ggml_tensor * table = dst->src[0];
    const struct ggml_tensor * ids   = dst->src[1];
    failed(note, pg_gather_rows(ggml_nrows(table), table->ne[0], F(table), ggml_nelements(ids),
                                (const int32_t *) ids->data, F(dst)));
}

static void gather_table(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    FUNCTION
    const struct ggml_tensor * table = dst->src[1];
    const struct ggml_tensor * ids   = dst->src[2];
    failed(note, pg_gather_rows_backward(ggml_nrows(table), table->ne[0], ggml_nelements(ids),
                                         (const int32_t *) ids->data, GRAD, F(dst)));
}

void pg_function_gather(pg_function * f) {
    f->forward     = gather;
    f->backward[0] = gather_table;
}

/* ---- normalization ----------------------------------------------------------------------- */

static void layer_norm(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    FUNCTION
    float * mean = WORK;
    pg_layer_norm(f->u.norm.rms, f->u.norm.batch, f->u.norm.size, f->u.norm.eps, IN(0), IN(1), IN(2),
                  F(dst), mean, mean == NULL ? NULL : mean + f->u.norm.batch);
}

static void layer_norm_back(struct ggml_tensor * dst, const pg_note * note, float * dx,
                            float * dgamma, float * dbeta) {
    const pg_function * f = note->function;
    float * mean = WORK_BACK;
    failed(note, pg_layer_norm_backward(f->u.norm.rms, f->u.norm.batch, f->u.norm.size,
                                        GRAD, IN_BACK(0), IN_BACK(1), mean,
                                        mean + f->u.norm.batch, dx, dgamma, dbeta));
}

static void layer_norm_x(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    FUNCTION
    layer_norm_back(dst, note, F(dst), NULL, NULL);
}

static void layer_norm_gamma(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    FUNCTION
    layer_norm_back(dst, note, NULL, F(dst), NULL);
}

static void layer_norm_beta(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    FUNCTION
    layer_norm_back(dst, note, NULL, NULL, F(dst));
}

void pg_function_layer_norm(pg_function * f) {
    f->forward     = layer_norm;
    f->backward[0] = layer_norm_x;
    f->backward[1] = layer_norm_gamma;
    f->backward[2] = layer_norm_beta;
}

static void batch_norm(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    FUNCTION
    float * mean = WORK;
    pg_batch_norm(1, f->u.norm.batch, f->u.norm.channels, f->u.norm.size, f->u.norm.eps, IN(0), IN(1),
                  IN(2), F(dst), mean, mean + f->u.norm.channels);
}

static void batch_norm_fixed(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    FUNCTION
    pg_batch_norm(0, f->u.norm.batch, f->u.norm.channels, f->u.norm.size, f->u.norm.eps, IN(0), IN(1),
                  IN(2), F(dst), IN(3), IN(4));
}

static void batch_norm_back(struct ggml_tensor * dst, const pg_note * note, float * dx,
                            float * dgamma, float * dbeta) {
    const pg_function * f = note->function;
    const int training = f->u.norm.training;
    const float * mean     = training ? WORK_BACK : IN_BACK(3);
    const float * variance = training ? mean + f->u.norm.channels : IN_BACK(4);
    failed(note, pg_batch_norm_backward(training, f->u.norm.batch, f->u.norm.channels,
                                        f->u.norm.size, f->u.norm.eps, GRAD, IN_BACK(0), IN_BACK(1),
                                        mean, variance, dx, dgamma, dbeta));
}

static void batch_norm_x(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    FUNCTION
    batch_norm_back(dst, note, F(dst), NULL, NULL);
}

static void batch_norm_gamma(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    FUNCTION
    batch_norm_back(dst, note, NULL, F(dst), NULL);
}

static void batch_norm_beta(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    FUNCTION
    batch_norm_back(dst, note, NULL, NULL, F(dst));
}

static void set_batch_norm_back(pg_function * f) {
    f->backward[0] = batch_norm_x;
    f->backward[1] = batch_norm_gamma;
    f->backward[2] = batch_norm_beta;
}

void pg_function_batch_norm(pg_function * f) {
    f->forward         = batch_norm;
    f->u.norm.training = 1;
    set_batch_norm_back(f);
}

void pg_function_batch_norm_fixed(pg_function * f) {
    f->forward         = batch_norm_fixed;
    f->u.norm.training = 0;
    set_batch_norm_back(f);
}

/* ---- recurrent layers -------------------------------------------------------------------- */

/* The workspace: what the kernel leaves for backward, then room for the gradients that the first
 * backward node computes on the side: du, drbias, dh0, dc0. */
static size_t rnn_gates(const pg_rnn * r) {
    return r->kind == PG_RNN_LSTM ? 4 : r->kind == PG_RNN_GRU ? 3 : 1;
}

size_t pg_function_rnn_floats(const pg_rnn * r) {
    const size_t h = (size_t) r->h, n = (size_t) r->n;
    return pg_rnn_workspace(r) + rnn_gates(r) * h * h + h + 2 * n * h;
}

static float * rnn_side(const pg_rnn * r, float * work, int input) {
    const size_t h = (size_t) r->h, n = (size_t) r->n;
    float * p = work + pg_rnn_workspace(r);
    const size_t sizes[4] = { rnn_gates(r) * h * h, h, n * h, n * h };
    for (int i = 1; i < input; ++i) {
        p += sizes[i - 1];
    }
    return p;
}

static float * given(const pg_function * f, const struct ggml_tensor * dst, int back, int input) {
    return f->given[input] ? F(dst->src[back + input]) : NULL;
}

/* The output is h of all steps, then the last c. */
static void rnn(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    FUNCTION
    const pg_rnn * r = &f->u.rnn;
    float * c_last = r->kind == PG_RNN_LSTM ? F(dst) + r->n * r->t * r->h : NULL;
    failed(note, pg_rnn_forward(r, IN(0), IN(1), given(f, dst, 0, 2), given(f, dst, 0, 3),
                                given(f, dst, 0, 4), F(dst), c_last, WORK));
}

static void rnn_x(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    FUNCTION
    const pg_rnn * r = &f->u.rnn;
    float *       work = WORK_BACK;
    const float * grad = GRAD;
    const float * out  = F(dst->src[2 + f->n_inputs]);
    float * h0 = given(f, dst, 1, 3);
    float * c0 = given(f, dst, 1, 4);
    failed(note, pg_rnn_backward(r, IN_BACK(1), h0, c0, out, work, grad, NULL,
                                 r->kind == PG_RNN_LSTM ? grad + r->n * r->t * r->h : NULL, F(dst),
                                 rnn_side(r, work, 1),
                                 f->given[2] ? rnn_side(r, work, 2) : NULL,
                                 h0 != NULL ? rnn_side(r, work, 3) : NULL,
                                 c0 != NULL ? rnn_side(r, work, 4) : NULL));
}

#define RNN_SIDE(name, input)                                                                     \
    static void name(struct ggml_tensor * dst, int ith, int nth, void * userdata) {               \
        FUNCTION                                                                                  \
        memcpy(F(dst), rnn_side(&f->u.rnn, WORK_BACK, input), ggml_nbytes(dst));                  \
    }

RNN_SIDE(rnn_u, 1)
RNN_SIDE(rnn_bias, 2)
RNN_SIDE(rnn_h0, 3)
RNN_SIDE(rnn_c0, 4)

void pg_function_rnn(pg_function * f) {
    f->forward     = rnn;
    f->backward[0] = rnn_x;
    f->backward[1] = rnn_u;
    f->backward[2] = rnn_bias;
    f->backward[3] = rnn_h0;
    f->backward[4] = rnn_c0;
    f->same_node   = 1;
}

/* ---- attention --------------------------------------------------------------------------- */

/* The workspace: the weights of all heads, then the gradients of k and v that the first backward node
 * computes on the side. */
static size_t attention_weights(const pg_attention * a) {
    return (size_t) (a->batch * a->heads * a->tq * a->tk);
}

static size_t attention_k(const pg_attention * a) {
    return (size_t) (a->batch * a->heads * a->tk * a->d);
}

static size_t attention_v(const pg_attention * a) {
    return (size_t) (a->batch * a->heads * a->tk * a->dv);
}

size_t pg_function_attention_floats(const pg_attention * a) {
    return attention_weights(a) + attention_k(a) + attention_v(a);
}

static void attention(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    FUNCTION
    pg_attention a = f->u.attention;
    a.sees = IN(3);
    failed(note, pg_attention_forward(&a, IN(0), IN(1), IN(2), F(dst), WORK));
}

static void attention_q(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    FUNCTION
    const pg_attention * a = &f->u.attention;
    float * weights = WORK_BACK;
    float * dk = weights + attention_weights(a);
    failed(note, pg_attention_backward(a, IN_BACK(0), IN_BACK(1), IN_BACK(2), weights, GRAD, F(dst),
                                       dk, dk + attention_k(a)));
}

#define ATTENTION_SIDE(name, offset)                                                              \
    static void name(struct ggml_tensor * dst, int ith, int nth, void * userdata) {               \
        FUNCTION                                                                                  \
        const pg_attention * a = &f->u.attention;                                                 \
        memcpy(F(dst), WORK_BACK + attention_weights(a) + (offset), ggml_nbytes(dst));            \
    }

ATTENTION_SIDE(attention_dk, 0)
ATTENTION_SIDE(attention_dv, attention_k(a))

void pg_function_attention(pg_function * f) {
    f->forward     = attention;
    f->backward[0] = attention_q;
    f->backward[1] = attention_dk;
    f->backward[2] = attention_dv;
    f->same_node   = 1;
}

int pg_fuses_activation(const pg_function * f) { return f->forward == conv; }

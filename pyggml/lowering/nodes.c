#include "nodes.h"

#include "gemm.h"
#include "node_common.h"

static pg_int step_of(const struct ggml_tensor * t, int i) { return (pg_int) (t->nb[i] / sizeof(float)); }

/* Run a product for every matrix of dst; sources with fewer are repeated as ggml repeats them. */
static void for_matrices(struct ggml_tensor * dst, const struct ggml_tensor * a,
                         const struct ggml_tensor * b, int ta, int tb, pg_int m, pg_int n, pg_int k,
                         pg_int lda, pg_int ldb, const pg_note * note) {
    const pg_int ldc = step_of(dst, 1);
    const pg_int n2 = dst->ne[2], n3 = dst->ne[3];
    /* operands of the row-major product: first b, then a */
    if (n2 * n3 == 1) {
        failed(note, pg_gemm(ta, tb, m, n, k, 1.0f, F(b), ldb, F(a), lda, 0.0f, F(dst), ldc));
        return;
    }
    if (n3 == 1 && b->ne[2] == n2 && (a->ne[2] == n2 || a->ne[2] == 1)) {
        failed(note, pg_gemm_batched(ta, tb, m, n, k, 1.0f, F(b), ldb, step_of(b, 2), F(a), lda,
                                     a->ne[2] == 1 ? 0 : step_of(a, 2), 0.0f, F(dst), ldc,
                                     step_of(dst, 2), n2));
        return;
    }
    for (pg_int i3 = 0; i3 < n3; ++i3) {
        for (pg_int i2 = 0; i2 < n2; ++i2) {
            const float * pa = F(a) + (i2 / (n2 / a->ne[2])) * step_of(a, 2) +
                               (i3 / (n3 / a->ne[3])) * step_of(a, 3);
            const float * pb = F(b) + (i2 / (n2 / b->ne[2])) * step_of(b, 2) +
                               (i3 / (n3 / b->ne[3])) * step_of(b, 3);
            failed(note, pg_gemm(ta, tb, m, n, k, 1.0f, pb, ldb, pa, lda, 0.0f,
                                 F(dst) + i2 * step_of(dst, 2) + i3 * step_of(dst, 3), ldc));
        }
    }
}

void pg_node_mul_mat(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    BEGIN
    const struct ggml_tensor * a = dst->src[0];
    const struct ggml_tensor * b = dst->src[1];
    for_matrices(dst, a, b, 0, 1, b->ne[1], a->ne[1], a->ne[0], step_of(a, 1), step_of(b, 1), note);
}

void pg_node_dense(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    BEGIN
    const struct ggml_tensor * a = dst->src[0];
    const struct ggml_tensor * b = dst->src[1];
    failed(note, pg_gemm_bias_act(0, 1, b->ne[1], a->ne[1], a->ne[0], 1.0f, F(b), step_of(b, 1), F(a),
                                  step_of(a, 1), 0.0f, F(dst), a->ne[1], F(dst->src[2]), note->act,
                                  note->param[0]));
}

/* dst(i1, i0) = sum over k of b(k, i1) a(k, i0) */
static int transposed(const struct ggml_tensor * b) { return b->nb[0] != sizeof(float); }

void pg_node_out_prod(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    BEGIN
    const struct ggml_tensor * a = dst->src[0];
    const struct ggml_tensor * b = dst->src[1];
    const int t = transposed(b);
    for_matrices(dst, a, b, !t, 0, b->ne[0], a->ne[0], a->ne[1], step_of(a, 1),
                 t ? step_of(b, 0) : step_of(b, 1), note);
}

static pg_step_params step_params(const struct ggml_tensor * t, int rule) {
    const float * p = F(t);
    pg_step_params q = { 0 };
    q.rule       = rule;
    q.grad_scale = 1.0f;
    q.lr         = p[0];
    if (rule == PG_STEP_ADAM) {
        q.beta1        = p[1];
        q.beta2        = p[2];
        q.eps          = p[3];
        q.weight_decay = p[4];
        q.h1           = p[5];
        q.h2           = p[6];
    } else {
        q.weight_decay = p[1];
    }
    return q;
}

static float * state(const struct ggml_tensor * dst, int i) {
    return dst->src[i] == NULL ? NULL : F(dst->src[i]);
}

void pg_node_update(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    BEGIN
    const struct ggml_tensor * a = dst->src[0];
    const struct ggml_tensor * b = dst->src[1];
    const pg_step_params p = step_params(dst->src[3], note->act);
    const int t = transposed(b);
    failed(note, pg_gemm_step(!t, 0, b->ne[0], a->ne[0], a->ne[1], F(b),
                              t ? step_of(b, 0) : step_of(b, 1), F(a), step_of(a, 1), &p,
                              F(dst->src[2]), state(dst, 4), state(dst, 5), NULL));
}

void pg_node_step(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    BEGIN
    const pg_step_params p = step_params(dst->src[2], note->act);
    pg_step(&p, ggml_nelements(dst), F(dst->src[0]), F(dst->src[1]), state(dst, 3), state(dst, 4),
            NULL);
}

void pg_node_sum_rows(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    BEGIN
    const struct ggml_tensor * x = dst->src[0];
    failed(note, pg_sum_rows(ggml_nrows(x), x->ne[0], F(x), x->ne[0], 0.0f, F(dst)));
}

void pg_node_act(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    BEGIN
    pg_act_forward(note->act, note->param[0], ggml_nelements(dst), F(dst->src[0]), F(dst));
}

void pg_node_act_back(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    BEGIN
    const float * given = F(dst->src[1]);
    pg_act_backward(note->act, note->param[0], ggml_nelements(dst), F(dst->src[0]),
                    note->flag ? NULL : given, note->flag ? given : NULL, F(dst));
}

void pg_node_dropout(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    BEGIN
    pg_dropout(note->rng, note->param[0], ggml_nelements(dst), F(dst->src[0]), F(dst));
}

static int loss(const pg_note * note, const struct ggml_tensor * pred,
                const struct ggml_tensor * label, const struct ggml_tensor * weight, double scale,
                float * grad, double * value) {
    const pg_int cols = pred->ne[0];
    return pg_loss(note->act, note->param[0], note->param[1], ggml_nrows(pred), cols, F(pred),
                   F(label), weight == NULL ? NULL : F(weight), note->flag ? 1 : cols,
                   note->flag ? 0 : 1, (float) scale, grad, value);
}

void pg_node_loss(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    BEGIN
    double value = 0.0;
    /* The scale stays in double until the sum is done. */
    failed(note, loss(note, dst->src[0], dst->src[1], dst->src[2], 1.0, NULL, &value));
    F(dst)[0] = (float) (value * note->scale);
}

void pg_node_loss_back(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    BEGIN
    double value = 0.0;
    failed(note, loss(note, dst->src[1], dst->src[2], dst->src[3],
                      note->scale * (double) F(dst->src[0])[0], F(dst), &value));
}

void pg_node_softmax(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    BEGIN
    pg_softmax(0, ggml_nrows(dst), dst->ne[0], F(dst->src[0]), F(dst));
}

void pg_node_softmax_back(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    BEGIN
    pg_softmax_backward(0, ggml_nrows(dst), dst->ne[0], F(dst->src[0]), F(dst->src[1]), F(dst));
}

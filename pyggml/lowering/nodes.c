#include "nodes.h"

#include "gemm.h"
#include "node_common.h"
#include "stepper.h"

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

/* Weight decay and the rest of an optimizer's parameters, and its states, from sources. */
static pg_step_params step_of_sources(const struct ggml_tensor * dst, const pg_note * note,
                                      const struct ggml_tensor * params, int first, float * s[3]) {
    float * given[3];
    for (int i = 0; i < 3; ++i) {
        given[i] = dst->src[first + i] == NULL ? NULL : F(dst->src[first + i]);
    }
    pg_step_params p = pg_step_params_of(note->act, F(params));
    p.clip = note->param[0];
    pg_step_states(note->act, F(params), given, s);
    return p;
}

void pg_node_update(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    BEGIN
    const struct ggml_tensor * a = dst->src[0];
    const struct ggml_tensor * b = dst->src[1];
    float * s[3];
    const pg_step_params p = step_of_sources(dst, note, dst->src[3], 4, s);
    const int t = transposed(b);
    failed(note, pg_gemm_step(!t, 0, b->ne[0], a->ne[0], a->ne[1], F(b),
                              t ? step_of(b, 0) : step_of(b, 1), F(a), step_of(a, 1), &p,
                              F(dst->src[2]), s[0], s[1], s[2]));
}

void pg_node_step(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    BEGIN
    float * s[3];
    const pg_step_params p = step_of_sources(dst, note, dst->src[2], 3, s);
    pg_step(&p, ggml_nelements(dst), F(dst->src[0]), F(dst->src[1]), s[0], s[1], s[2]);
}

void pg_node_add(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    BEGIN
    const pg_int all = ggml_nelements(dst), n = ggml_nelements(dst->src[1]);
    if (n == all) {
        pg_axpby(n, 1.0f, F(dst->src[0]), 1.0f, F(dst->src[1]), F(dst));
    } else {
        pg_bias_act(PG_ACT_LINEAR, 0.0f, all / n, n, F(dst->src[0]), F(dst->src[1]), NULL, F(dst));
    }
}

void pg_node_permuted(struct ggml_tensor * dst, int ith, int nth, void * userdata) {
    BEGIN
    const struct ggml_tensor * x = dst->src[0];
    pg_int n[4], s[4];
    for (int i = 0; i < 4; ++i) {
        n[i] = x->ne[i];
        s[i] = step_of(x, i);
    }
    failed(note, pg_copy_permuted(n, s, F(x), F(dst)));
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

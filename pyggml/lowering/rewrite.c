#include <stdlib.h>
#include <string.h>

#include "functions.h"
#include "node_common.h"
#include "stepper.h"
#include "users.h"

struct pg_lowered {
    int       status;
    int       count, dead;
    pg_note * notes;
};

typedef struct work {
    pg_lowered *          lowered;
    struct ggml_context * scratch; /* where ggml fills in the parameters of custom nodes */
    pg_users              u;
    const pg_carrier *    carriers;
    int                   n_carriers;
    int                   rules;
} work;

/* ---- rewriting one node ------------------------------------------------------------------ */

static pg_note * set_custom(work * w, struct ggml_tensor * t, ggml_custom_op_t fun, int n_src,
                            struct ggml_tensor ** src) {
    pg_note * note = calloc(1, sizeof(*note));
    if (note == NULL) {
        return NULL;
    }
    note->status      = &w->lowered->status;
    note->next        = w->lowered->notes;
    w->lowered->notes = note;
    ggml_reset(w->scratch);
    struct ggml_tensor * model =
        ggml_custom_4d(w->scratch, GGML_TYPE_F32, 1, 1, 1, 1, NULL, 0, fun, 1, note);
    t->op = GGML_OP_CUSTOM;
    memcpy(t->op_params, model->op_params, sizeof(t->op_params));
    for (int i = 0; i < GGML_MAX_SRC; ++i) {
        t->src[i] = i < n_src ? src[i] : NULL;
    }
    w->lowered->count++;
    return note;
}

/* A node that nothing needs any more becomes a view of something that exists: it takes neither
 * time nor memory, but stays in the graph, whose nodes are counted. */
static void kill(work * w, struct ggml_tensor * t, struct ggml_tensor * existing) {
    struct ggml_tensor * root = existing->view_src != NULL ? existing->view_src : existing;
    for (int i = 0; i < GGML_MAX_SRC; ++i) {
        t->src[i] = NULL;
    }
    t->op        = GGML_OP_VIEW;
    t->src[0]    = existing;
    t->view_src  = root;
    t->view_offs = 0;
    w->lowered->dead++;
}

static int is_leaf_f32(const struct ggml_tensor * t) {
    return t->op == GGML_OP_NONE && t->data != NULL && t->type == GGML_TYPE_F32;
}

static const pg_carrier * carrier_of(const work * w, const struct ggml_tensor * key) {
    return w->u.carrier[pg_users_slot(&w->u, key)];
}

/* ---- rules ------------------------------------------------------------------------------- */

static int rows_in_order(const struct ggml_tensor * t) {
    return t->type == GGML_TYPE_F32 && t->nb[0] == sizeof(float);
}

static int is_product(const struct ggml_tensor * t) {
    const struct ggml_tensor * a = t->src[0];
    const struct ggml_tensor * b = t->src[1];
    if (t->type != GGML_TYPE_F32 || !ggml_is_contiguous(t) || !rows_in_order(a)) {
        return 0;
    }
    if (t->op == GGML_OP_MUL_MAT) {
        return rows_in_order(b);
    }
    return b->type == GGML_TYPE_F32 && (b->nb[0] == sizeof(float) || b->nb[1] == sizeof(float));
}

static int is_matrix_product(const struct ggml_tensor * t) {
    return t->op == GGML_OP_MUL_MAT && is_product(t) && t->ne[2] * t->ne[3] == 1;
}

/* ADD(MUL_MAT(a, b), bias), or of a RESHAPE of the product, which nothing else uses; returns the
 * product. */
static struct ggml_tensor * dense_of(const work * w, const struct ggml_tensor * add) {
    if (add->op != GGML_OP_ADD) {
        return NULL;
    }
    struct ggml_tensor * product = add->src[0];
    struct ggml_tensor * bias    = add->src[1];
    const struct ggml_tensor * user = add;
    if (product->op == GGML_OP_RESHAPE && pg_only_user(&w->u, product) == add) {
        user    = product;
        product = product->src[0];
    }
    if (!is_matrix_product(product) || pg_only_user(&w->u, product) != user || !is_leaf_f32(bias) ||
        bias->ne[0] != product->ne[0] || bias->ne[0] != add->ne[0] ||
        ggml_nelements(bias) != bias->ne[0]) {
        return NULL;
    }
    return product;
}

/* Whether an activation may be computed where its argument is, which then does not exist: the
 * backward pass has to do with the result. */
static int may_fuse(const work * w, const struct ggml_tensor * key, int act) {
    const int users = pg_users_count(&w->u, key);
    return key->op == GGML_OP_RESHAPE && (users == 1 || (users == 2 && pg_act_from_y(act)));
}

static int fuse_dense(work * w, struct ggml_tensor * t, const pg_carrier * c) {
    struct ggml_tensor * key = t->src[0];
    struct ggml_tensor * add = key->src[0];
    if (pg_only_user(&w->u, add) != key) {
        return 0;
    }
    struct ggml_tensor * product = dense_of(w, add);
    if (product == NULL) {
        return 0;
    }
    struct ggml_tensor * weight = product->src[0];
    struct ggml_tensor * src[3] = { weight, product->src[1], add->src[1] };
    pg_note * note = set_custom(w, t, pg_node_dense, 3, src);
    if (note == NULL) {
        return PG_ENOMEM;
    }
    note->act      = c->act;
    note->param[0] = c->param[0];
    kill(w, product, weight);
    kill(w, add, weight);
    kill(w, key, weight);
    return 1;
}

/* The function whose last carrier is t. */
static pg_function * function_ending_in(const work * w, const struct ggml_tensor * t) {
    for (int i = 0; i < w->n_carriers; ++i) {
        pg_function * f = w->carriers[i].function;
        if (f != NULL && (f->n_sums > 0 ? f->sums[f->n_sums - 1] : f->output) == t) {
            return f;
        }
    }
    return NULL;
}

/* A convolution whose result only the activation reads, through reshapes. */
static int fuse_function(work * w, struct ggml_tensor * t, const pg_carrier * c) {
    struct ggml_tensor * user = t->src[0];
    struct ggml_tensor * last = user->src[0];
    while (last->op == GGML_OP_RESHAPE && pg_only_user(&w->u, last) == user) {
        user = last;
        last = last->src[0];
    }
    pg_function * f = pg_only_user(&w->u, last) == user ? function_ending_in(w, last) : NULL;
    if (f == NULL || !pg_fuses_activation(f) || f->workspace != NULL) {
        return 0;
    }
    struct ggml_tensor * existing = f->inputs[0];
    for (struct ggml_tensor * dead = t->src[0]; dead != last;) {
        struct ggml_tensor * next = dead->src[0];
        kill(w, dead, existing);
        dead = next;
    }
    for (int i = 0; i < f->n_sums; ++i) {
        kill(w, f->sums[i], existing);
    }
    kill(w, f->output, existing);
    w->lowered->count--;
    f->n_sums = 0;
    f->output = t;
    f->act    = c->act;
    f->param  = c->param[0];
    pg_note * note = set_custom(w, t, f->forward, f->n_inputs, f->inputs);
    if (note == NULL) {
        return PG_ENOMEM;
    }
    note->function = f;
    return 1;
}

static int lower_function(work * w, struct ggml_tensor * t) {
    const pg_carrier * c = carrier_of(w, t->src[1]);
    if (c == NULL || c->kind != PG_CARRY_FUNCTION) {
        return 0;
    }
    pg_function *    f = c->function;
    const int        back = t->op == GGML_OP_GET_ROWS_BACK;
    ggml_custom_op_t fun  = back ? f->backward[c->act] : f->forward;
    if (!back && t != f->output) {
        kill(w, t, f->output);
        return 1;
    }
    struct ggml_tensor * src[PG_MAX_INPUTS + 3];
    int n = 0;
    if (back) {
        src[n++] = t->src[0];
    }
    for (int i = 0; i < f->n_inputs; ++i) {
        src[n++] = f->inputs[i];
    }
    if (f->workspace != NULL) {
        src[n++] = f->workspace;
    }
    if (back) {
        src[n++] = f->output;
    }
    pg_note * note = set_custom(w, t, fun, n, src);
    if (note == NULL) {
        return PG_ENOMEM;
    }
    note->function = f;
    return 1;
}

/* The first gradient of a function with one backward pass for all is computed before the others,
 * which copy theirs: it becomes a source of theirs. */
static void order_gradients(work * w, struct ggml_context * ctx) {
    for (int i = 0; i < w->n_carriers; ++i) {
        const pg_carrier * c = &w->carriers[i];
        if (c->kind != PG_CARRY_FUNCTION || !c->function->same_node || c->act != 0) {
            continue;
        }
        struct ggml_tensor * first = NULL;
        for (int pass = 0; pass < 2; ++pass) {
            for (struct ggml_tensor * t = ggml_get_first_tensor(ctx); t != NULL;
                 t = ggml_get_next_tensor(ctx, t)) {
                if (!pg_is_gradient_of(t, c->function)) {
                    continue;
                }
                if (pass == 0 && pg_is_gradient(t, c->function, 0)) {
                    first = t;
                }
                if (pass == 1 && first != NULL && t != first) {
                    t->src[GGML_MAX_SRC - 1] = first;
                }
            }
        }
    }
}

static int lower_carrier(work * w, struct ggml_tensor * t) {
    const int forward = t->op == GGML_OP_UNARY && ggml_get_unary_op(t) == GGML_UNARY_OP_SILU;
    if (forward || t->op == GGML_OP_SILU_BACK) {
        struct ggml_tensor * key = t->src[forward ? 0 : 1];
        const pg_carrier *   c   = carrier_of(w, key);
        if (c == NULL) {
            return 0;
        }
        pg_note * note;
        if (c->kind == PG_CARRY_DROPOUT) {
            struct ggml_tensor * src[1] = { t->src[0] };
            note = set_custom(w, t, pg_node_dropout, 1, src);
            if (note != NULL) {
                note->rng = c->rng;
            }
        } else if (forward) {
            if ((w->rules & PG_RULE_FUSE) && may_fuse(w, key, c->act)) {
                int fused = fuse_dense(w, t, c);
                fused = fused == 0 ? fuse_function(w, t, c) : fused;
                if (fused != 0) {
                    return fused;
                }
            }
            struct ggml_tensor * src[1] = { key };
            note = set_custom(w, t, pg_node_act, 1, src);
        } else {
            /* The forward node is the first user of the key. */
            struct ggml_tensor * y = w->u.first[pg_users_slot(&w->u, key)];
            const int from_y = pg_act_from_y(c->act);
            struct ggml_tensor * src[2] = { t->src[0], from_y ? y : key };
            note = set_custom(w, t, pg_node_act_back, 2, src);
            if (note != NULL) {
                note->flag = from_y;
            }
        }
        if (note == NULL) {
            return PG_ENOMEM;
        }
        note->act      = c->act;
        note->param[0] = c->param[0];
        return 1;
    }
    if (t->op == GGML_OP_GET_ROWS || t->op == GGML_OP_GET_ROWS_BACK) {
        return lower_function(w, t);
    }
    if (t->op == GGML_OP_CROSS_ENTROPY_LOSS || t->op == GGML_OP_CROSS_ENTROPY_LOSS_BACK) {
        const int back = t->op == GGML_OP_CROSS_ENTROPY_LOSS_BACK;
        const pg_carrier * c = carrier_of(w, t->src[back ? 2 : 1]);
        if (c == NULL) {
            return 0;
        }
        struct ggml_tensor * src[4];
        int n = 0;
        if (back) {
            src[n++] = t->src[0];
        }
        src[n++] = t->src[back ? 1 : 0];
        src[n++] = c->extra[0];
        if (c->extra[1] != NULL) {
            src[n++] = c->extra[1];
        }
        pg_note * note = set_custom(w, t, back ? pg_node_loss_back : pg_node_loss, n, src);
        if (note == NULL) {
            return PG_ENOMEM;
        }
        note->act      = c->act;
        note->param[0] = c->param[0];
        note->param[1] = c->param[1];
        note->scale    = c->scale;
        note->flag     = c->weight_rows;
        return 1;
    }
    return 0;
}

/* Below this many elements a weight fits the caches and its gradient may as well be written. */
#define UPDATE_FROM (1 << 20)

static int lower_step(work * w, struct ggml_tensor * t) {
    struct ggml_tensor * params;
    struct ggml_tensor * states[3] = { NULL, NULL, NULL };
    const pg_stepper *   stepper   = NULL;
    int rule;
    if (t->op == GGML_OP_OPT_STEP_ADAMW) {
        rule      = PG_STEP_ADAM;
        params    = t->src[4];
        states[0] = t->src[2];
        states[1] = t->src[3];
    } else if (t->op == GGML_OP_OPT_STEP_SGD) {
        rule   = PG_STEP_SGD;
        params = t->src[2];
    } else if (t->op == GGML_OP_CUSTOM && params_of(t).fun == pg_node_stepper) {
        stepper = params_of(t).userdata;
        rule    = stepper->rule;
        params  = t->src[2];
        memcpy(states, t->src + 3, sizeof(states));
    } else {
        return 0;
    }
    struct ggml_tensor * g = t->src[1];
    pg_note * note;
    if ((w->rules & PG_RULE_UPDATE) && (w->rules & PG_RULE_MATMUL) &&
        (stepper == NULL || stepper->clip <= PG_CLIP_VALUE) && g->op == GGML_OP_OUT_PROD &&
        is_product(g) && g->ne[2] * g->ne[3] == 1 && pg_only_user(&w->u, g) == t &&
        ggml_nelements(g) >= UPDATE_FROM) {
        struct ggml_tensor * src[7] = { g->src[0], g->src[1], t->src[0], params,
                                        states[0], states[1], states[2] };
        note = set_custom(w, t, pg_node_update, 7, src);
        if (note != NULL) {
            kill(w, g, t->src[2]);
        }
    } else if (stepper != NULL || !(w->rules & PG_RULE_STEP) || !ggml_is_contiguous(g)) {
        return 0;
    } else {
        struct ggml_tensor * src[6] = { t->src[0], g, params, states[0], states[1], states[2] };
        note = set_custom(w, t, pg_node_step, 6, src);
    }
    if (note == NULL) {
        return PG_ENOMEM;
    }
    note->act = rule;
    if (stepper != NULL && stepper->clip == PG_CLIP_VALUE) {
        note->param[0] = (float) stepper->limit;
    }
    return 1;
}

static int lower_softmax(work * w, struct ggml_tensor * t) {
    /* plain softmax: no mask, no sinks, scale 1, no bias */
    float p[2];
    memcpy(p, t->op_params, sizeof(p));
    if (p[0] != 1.0f || p[1] != 0.0f) {
        return 0;
    }
    if (t->op == GGML_OP_SOFT_MAX && t->src[1] == NULL && t->src[2] == NULL &&
        ggml_is_contiguous(t->src[0])) {
        return set_custom(w, t, pg_node_softmax, 1, t->src) == NULL ? PG_ENOMEM : 1;
    }
    if (t->op == GGML_OP_SOFT_MAX_BACK && ggml_is_contiguous(t->src[0]) &&
        ggml_is_contiguous(t->src[1])) {
        struct ggml_tensor * src[2] = { t->src[0], t->src[1] };
        return set_custom(w, t, pg_node_softmax_back, 2, src) == NULL ? PG_ENOMEM : 1;
    }
    return 0;
}

/* Whether b is added to each of the blocks of its size that a consists of. */
static int adds_blocks(const struct ggml_tensor * t) {
    const struct ggml_tensor * a = t->src[0];
    const struct ggml_tensor * b = t->src[1];
    int axis = 0;
    if (t->type != GGML_TYPE_F32 || a->type != GGML_TYPE_F32 || b->type != GGML_TYPE_F32 ||
        !ggml_is_contiguous(t) || !ggml_is_contiguous(a) || !ggml_is_contiguous(b) ||
        !ggml_are_same_shape(t, a) || ggml_nelements(b) == 0) {
        return 0;
    }
    while (axis < GGML_MAX_DIMS && b->ne[axis] == a->ne[axis]) {
        ++axis;
    }
    for (int i = axis; i < GGML_MAX_DIMS; ++i) {
        if (b->ne[i] != 1) {
            return 0;
        }
    }
    return axis > 0;
}

/* Whether a copy turns axes round: what is adjacent in its source is not so in t. */
static int turns_axes(const struct ggml_tensor * t) {
    const struct ggml_tensor * x = t->src[0];
    int adjacent = 0;
    if (t->type != GGML_TYPE_F32 || x->type != GGML_TYPE_F32 || !ggml_is_contiguous(t) ||
        ggml_nelements(t) == 0 || x->ne[0] == 1 || x->nb[0] == sizeof(float)) {
        return 0;
    }
    for (int i = 0; i < GGML_MAX_DIMS; ++i) {
        if (x->nb[i] == 0 || x->nb[i] % sizeof(float) != 0) {
            return 0;
        }
        adjacent += x->ne[i] > 1 && x->nb[i] == sizeof(float);
    }
    return adjacent == 1;
}

static int lower_node(work * w, struct ggml_tensor * t) {
    if ((w->rules & PG_RULE_FUSE) && t->op == GGML_OP_ADD) {
        struct ggml_tensor * product = dense_of(w, t);
        if (product != NULL) {
            struct ggml_tensor * src[3] = { product->src[0], product->src[1], t->src[1] };
            pg_note * note = set_custom(w, t, pg_node_dense, 3, src);
            if (note == NULL) {
                return PG_ENOMEM;
            }
            note->act = PG_ACT_LINEAR;
            kill(w, product, src[0]);
            return 1;
        }
    }
    if ((w->rules & PG_RULE_MATMUL) &&
        (t->op == GGML_OP_MUL_MAT || t->op == GGML_OP_OUT_PROD) && is_product(t)) {
        struct ggml_tensor * src[2] = { t->src[0], t->src[1] };
        const int forward = t->op == GGML_OP_MUL_MAT;
        return set_custom(w, t, forward ? pg_node_mul_mat : pg_node_out_prod, 2, src) == NULL
            ? PG_ENOMEM : 1;
    }
    if ((w->rules & PG_RULE_BIAS) && t->op == GGML_OP_REPEAT_BACK &&
        t->ne[0] == t->src[0]->ne[0] && ggml_nelements(t) == t->ne[0] &&
        ggml_is_contiguous(t->src[0])) {
        struct ggml_tensor * src[1] = { t->src[0] };
        return set_custom(w, t, pg_node_sum_rows, 1, src) == NULL ? PG_ENOMEM : 1;
    }
    if ((w->rules & PG_RULE_ADD) && t->op == GGML_OP_ADD && adds_blocks(t)) {
        struct ggml_tensor * src[2] = { t->src[0], t->src[1] };
        return set_custom(w, t, pg_node_add, 2, src) == NULL ? PG_ENOMEM : 1;
    }
    if ((w->rules & PG_RULE_COPY) && t->op == GGML_OP_CONT && turns_axes(t)) {
        return set_custom(w, t, pg_node_permuted, 1, t->src) == NULL ? PG_ENOMEM : 1;
    }
    if ((w->rules & PG_RULE_SOFTMAX) &&
        (t->op == GGML_OP_SOFT_MAX || t->op == GGML_OP_SOFT_MAX_BACK)) {
        return lower_softmax(w, t);
    }
    return 0;
}

/* Labels and weights of a loss are joined in a custom node that only carries them; so are the
 * keys of functions, and the sums of their carriers. */
static void kill_joints(work * w) {
    for (int i = 0; i < w->n_carriers; ++i) {
        const pg_carrier * c = &w->carriers[i];
        if (c->kind == PG_CARRY_FUNCTION) {
            kill(w, c->key, c->function->inputs[0]);
            for (int s = 0; c->act == 0 && s < c->function->n_sums; ++s) {
                kill(w, c->function->sums[s], c->function->output);
            }
        }
        if (c->kind == PG_CARRY_LOSS && c->key != c->extra[0]) {
            kill(w, c->key, c->extra[0]);
        }
    }
}

/* Views of what became a view itself go to its root, as ggml wants them. */
static void flatten_views(struct ggml_context * ctx) {
    for (struct ggml_tensor * t = ggml_get_first_tensor(ctx); t != NULL;
         t = ggml_get_next_tensor(ctx, t)) {
        while (t->view_src != NULL && t->view_src->view_src != NULL) {
            t->view_offs += t->view_src->view_offs;
            t->view_src = t->view_src->view_src;
        }
    }
}

static int for_all(work * w, struct ggml_context * ctx, int (*rule)(work *, struct ggml_tensor *)) {
    for (struct ggml_tensor * t = ggml_get_first_tensor(ctx); t != NULL;
         t = ggml_get_next_tensor(ctx, t)) {
        if (rule(w, t) < 0) {
            return PG_ENOMEM;
        }
    }
    return PG_OK;
}

pg_lowered * pg_lower(struct ggml_context * compute, struct ggml_context * kept,
                      const pg_carrier * carriers, int n_carriers, int rules) {
    work w;
    memset(&w, 0, sizeof(w));
    w.carriers   = carriers;
    w.n_carriers = n_carriers;
    w.rules      = rules;
    w.lowered    = calloc(1, sizeof(*w.lowered));
    struct ggml_init_params params = { 4 * ggml_tensor_overhead(), NULL, true };
    w.scratch = ggml_init(params);
    int status = w.lowered == NULL || w.scratch == NULL ? PG_ENOMEM : PG_OK;
    if (status == PG_OK) {
        status = pg_users_make(&w.u, compute, kept, carriers, n_carriers);
    }
    /* Carriers first: they fuse the widest. Steps before products: they take gradients over. */
    if (status == PG_OK) {
        status = for_all(&w, compute, lower_carrier);
    }
    if (status == PG_OK) {
        status = for_all(&w, kept, lower_carrier);
    }
    kill_joints(&w);
    order_gradients(&w, compute);
    if (status == PG_OK && (rules & (PG_RULE_STEP | PG_RULE_UPDATE))) {
        status = for_all(&w, compute, lower_step);
    }
    if (status == PG_OK) {
        status = for_all(&w, compute, lower_node);
    }
    flatten_views(compute);
    flatten_views(kept);
    pg_users_free(&w.u);
    ggml_free(w.scratch);
    if (status != PG_OK) {
        pg_lowered_free(w.lowered);
        return NULL;
    }
    return w.lowered;
}

void pg_lowered_free(pg_lowered * lowered) {
    if (lowered == NULL) {
        return;
    }
    while (lowered->notes != NULL) {
        pg_note * next = lowered->notes->next;
        free(lowered->notes);
        lowered->notes = next;
    }
    free(lowered);
}

int pg_lowered_status(pg_lowered * lowered) {
    const int status = lowered->status;
    lowered->status  = PG_OK;
    return status;
}

int pg_lowered_failed(const pg_lowered * lowered) {
    return lowered != NULL && lowered->status != PG_OK;
}

int pg_lowered_count(const pg_lowered * lowered) { return lowered->count; }

int pg_lowered_dead(const pg_lowered * lowered) { return lowered->dead; }
